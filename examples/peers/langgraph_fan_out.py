"""The fan-out of `impresario bench` as a LangGraph program: a root asks for n subagents, they work at once, and the root
puts their answers together.

It is asked of the server at BASE_URL: `python langgraph_fan_out.py BASE_URL N`. It ends with 1 if anything is missing.
"""

import asyncio
import operator
import sys
from typing import Annotated, TypedDict

from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

SUBAGENT = {
    "type": "function",
    "function": {
        "name": "subagent",
        "description": "Delegates a task to a subagent.",
        "parameters": {"type": "object", "properties": {"prompt": {"type": "string"}}, "required": ["prompt"]},
    },
}


class Root(TypedDict):
    """What the root knows: its messages, those of the tools of one round in any order."""

    messages: Annotated[list[BaseMessage], operator.add]


class Child(TypedDict):
    """What a subagent is told, and the call that it answers."""

    prompt: str
    call: str


def graph(base_url: str, n: int):
    """The program, with nothing in it that waits but the model."""
    model = ChatOpenAI(base_url=base_url, model="bench", api_key="none", max_retries=0, streaming=True)
    with_tools = model.bind_tools([SUBAGENT])

    async def root(state: Root) -> Root:
        return {"messages": [await with_tools.ainvoke(state["messages"])]}

    async def child(state: Child) -> Root:
        answer = await model.ainvoke([HumanMessage(state["prompt"])])
        return {"messages": [ToolMessage(answer.content, tool_call_id=state["call"])]}

    def delegate(state: Root):
        calls = state["messages"][-1].tool_calls
        return [Send("child", {"prompt": call["args"]["prompt"], "call": call["id"]}) for call in calls] or END

    built = StateGraph(Root)
    built.add_node("root", root)
    built.add_node("child", child)
    built.add_edge(START, "root")
    built.add_conditional_edges("root", delegate, ["child", END])
    built.add_edge("child", "root")
    return built.compile()


async def main() -> int:
    base_url, n = sys.argv[1], int(sys.argv[2])
    said = {"messages": [HumanMessage(f"rounds {n} | work")]}
    ended = await graph(base_url, n).ainvoke(said, {"recursion_limit": 16, "max_concurrency": n + 16})
    answers = sum(isinstance(message, ToolMessage) for message in ended["messages"])
    last = ended["messages"][-1].content
    print(f"{answers} answers, then: {last}")
    return 0 if answers == n and last == f"all {n} done" else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
