//! zstd frames: every append to a compressed log is one, whole.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _, SeekFrom, Take};

use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

const MAGIC: u32 = 0xFD2F_B528;

/// Frames of other programs that a reader passes over.
const SKIPPABLE: std::ops::RangeInclusive<u32> = 0x184D_2A50..=0x184D_2A5F;

/// What begins at a place of a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Frame {
    /// A frame of so many bytes, to be read.
    Whole(u64),
    /// One of so many bytes, to be passed over.
    Skippable(u64),
    /// The file ends before the frame does.
    Torn,
    /// No frame at all.
    Foreign,
}

/// One frame that holds `bytes`.
pub(super) fn compress(bytes: &[u8]) -> Vec<u8> {
    let frame = compress_to_vec(bytes, CompressionLevel::Fastest);
    // What is written has to read back, whatever the encoder makes of unusual content.
    if holds(&frame, bytes) { frame } else { compress_to_vec(bytes, CompressionLevel::Uncompressed) }
}

fn holds(frame: &[u8], bytes: &[u8]) -> bool {
    let Ok(mut decoder) = StreamingDecoder::new(frame) else { return false };
    let mut read = Vec::with_capacity(bytes.len());
    decoder.read_to_end(&mut read).is_ok() && read == bytes
}

/// What begins at `at`, in a file that ends at `end`. Reads the heads of blocks only.
pub(super) fn frame_at(file: &mut File, at: u64, end: u64) -> io::Result<Frame> {
    let mut walk = Walk { file, at, end };
    Ok(match walk.frame() {
        Ok(frame) => frame,
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Frame::Torn,
        Err(error) => return Err(error),
    })
}

struct Walk<'a> {
    file: &'a mut File,
    at: u64,
    end: u64,
}

impl Walk<'_> {
    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        if self.end.saturating_sub(self.at) < N as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.file.seek(SeekFrom::Start(self.at))?;
        self.file.read_exact(&mut bytes)?;
        self.at += N as u64;
        Ok(bytes)
    }

    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        self.at = self.at.saturating_add(bytes);
        if self.at > self.end { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    fn frame(&mut self) -> io::Result<Frame> {
        let start = self.at;
        if self.end.saturating_sub(start) < 4 {
            return self.short();
        }
        let magic = u32::from_le_bytes(self.take()?);
        if SKIPPABLE.contains(&magic) {
            let length = u32::from_le_bytes(self.take()?);
            self.skip(length.into())?;
            return Ok(Frame::Skippable(self.at - start));
        }
        if magic != MAGIC {
            return Ok(if magic == 0 && self.is_blank(start)? { Frame::Torn } else { Frame::Foreign });
        }
        let [descriptor] = self.take()?;
        let is_single_segment = descriptor & 0x20 != 0;
        let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
        let size = [u64::from(is_single_segment), 2, 4, 8][usize::from(descriptor >> 6)];
        self.skip(u64::from(!is_single_segment) + dictionary + size)?;
        loop {
            let [low, middle, high] = self.take()?;
            let block = u32::from_le_bytes([low, middle, high, 0]);
            let (kind, length) = ((block >> 1) & 3, u64::from(block >> 3));
            match kind {
                // One byte, repeated.
                1 => self.skip(1)?,
                3 => return Ok(Frame::Foreign),
                _ => self.skip(length)?,
            }
            if block & 1 == 1 {
                break;
            }
        }
        // The checksum.
        self.skip(if descriptor & 4 != 0 { 4 } else { 0 })?;
        Ok(Frame::Whole(self.at - start))
    }

    /// Too short to say what it is: the beginning of a frame, or of something else.
    fn short(&mut self) -> io::Result<Frame> {
        let magic = MAGIC.to_le_bytes();
        for expected in magic {
            if self.at == self.end {
                break;
            }
            let [found] = self.take()?;
            if found != expected && found != 0 {
                return Ok(Frame::Foreign);
            }
        }
        Ok(Frame::Torn)
    }

    /// Whether only zeros follow: what a file system leaves of a write that the power cut off.
    fn is_blank(&mut self, from: u64) -> io::Result<bool> {
        self.file.seek(SeekFrom::Start(from))?;
        for byte in BufReader::new((&mut *self.file).take(self.end - from)).bytes() {
            if byte? != 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The content of one whole frame, a block at a time.
pub(super) struct Content(StreamingDecoder<BufReader<Take<File>>, FrameDecoder>);

impl Content {
    /// The frame of `length` bytes at `at`, when all of it decompresses to what its checksum says.
    pub(super) fn check(file: &File, at: u64, length: u64) -> io::Result<Self> {
        io::copy(&mut Self::open(file, at, length)?, &mut io::sink())?;
        Self::open(file, at, length)
    }

    fn open(file: &File, at: u64, length: u64) -> io::Result<Self> {
        let mut file = file.try_clone()?;
        file.seek(SeekFrom::Start(at))?;
        let decoder = StreamingDecoder::new(BufReader::new(file.take(length)));
        decoder.map(Self).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
    }
}

impl Read for Content {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(into);
        let read = read.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
        let decoder = &self.0.decoder;
        let (said, found) = (decoder.get_checksum_from_data(), decoder.get_calculated_checksum());
        let is_over = read == 0 && !into.is_empty() && decoder.is_finished();
        if is_over && said.is_some() && said != found {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the checksum of the frame is wrong"));
        }
        Ok(read)
    }
}
