//! Names of artifacts.

/// A name that follows from the content: FNV-1a over 128 bits and the length. Names are given by us alone, so a hash
/// that nobody attacks is enough.
pub(crate) fn content_name(bytes: &[u8]) -> String {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let hash = bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME));
    format!("{hash:032x}-{}", bytes.len())
}
