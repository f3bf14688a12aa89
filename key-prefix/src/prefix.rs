//! Which stage and branch a process belongs to, as the first segment of every name.

use std::fmt::{self, Write as _};

const MAX_STAGE_BYTES: usize = 32;
/// A longer segment is cut and ends in a digest of the whole branch name.
const MAX_SEGMENT_BYTES: usize = 64;
const DIGEST_BYTES: usize = 16;

/// Why a `key_prefix` is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// No prefix where one is needed.
    #[error("no key prefix: give a stage, or `stage/branch`; only `dev` goes without")]
    Missing,
    /// The stage has a wrong form.
    #[error("the stage {found:?} is not 1 to 32 of the characters a-z, 0-9, `-`")]
    Stage {
        /// The stage as given.
        found: String,
    },
    /// `stage/` with nothing after the slash.
    #[error("the key prefix names a stage and a slash, but no branch")]
    Branch,
}

/// The first segment of every key and channel: `stage`, or `stage.branch` with the branch made safe.
///
/// Branch characters other than `a-z`, `0-9` and `-` are written as `_` and two hexadecimal digits for
/// each byte, so two branches never become the same segment; one that gets too long is cut and ends in
/// a digest of the whole name, behind `_h`, which no such byte can be.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Prefix(String);

impl Prefix {
    /// Reads a `key_prefix` of the configuration: `stage` or `stage/branch`.
    pub fn parse(text: &str) -> Result<Self, PrefixError> {
        if text.is_empty() {
            return Err(PrefixError::Missing);
        }
        let (stage, branch) = match text.split_once('/') {
            Some((_, "")) => return Err(PrefixError::Branch),
            Some((stage, branch)) => (stage, Some(branch)),
            None => (text, None),
        };
        let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        if stage.is_empty() || stage.len() > MAX_STAGE_BYTES || !stage.bytes().all(plain) {
            return Err(PrefixError::Stage { found: stage.to_owned() });
        }
        Ok(Self(match branch {
            None => stage.to_owned(),
            Some(branch) => format!("{stage}.{}", segment(branch)),
        }))
    }

    /// The prefix of a process in `--dev`, where none need be given.
    pub fn dev() -> Self {
        Self("dev".to_owned())
    }

    /// The segment, without a separator.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn segment(branch: &str) -> String {
    let mut out = String::with_capacity(branch.len());
    for byte in branch.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' => out.push(char::from(byte)),
            other => _ = write!(out, "_{other:02x}"),
        }
    }
    if out.len() > MAX_SEGMENT_BYTES {
        let digest = blake3::hash(branch.as_bytes());
        out.truncate(MAX_SEGMENT_BYTES - 2 - 2 * DIGEST_BYTES);
        out.push_str("_h");
        for byte in &digest.as_bytes()[..DIGEST_BYTES] {
            _ = write!(out, "{byte:02x}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_missing_or_malformed_prefix_is_refused() {
        assert_eq!(Prefix::parse(""), Err(PrefixError::Missing));
        assert_eq!(Prefix::parse("prod/"), Err(PrefixError::Branch));
        for bad in ["Prod", "a.b", "a:b", "a b", "/x", &"s".repeat(33)] {
            assert!(matches!(Prefix::parse(bad), Err(PrefixError::Stage { .. })), "{bad}");
        }
        assert_eq!(Prefix::parse("prod").unwrap().as_str(), "prod");
    }

    #[test]
    fn a_branch_becomes_a_safe_segment() {
        let prefix = |text: &str| Prefix::parse(text).unwrap().as_str().to_owned();
        assert_eq!(prefix("dev/feature/Login_2"), "dev.feature_2f_4cogin_5f2");
        assert_eq!(prefix("dev/a.b:c\0d"), "dev.a_2eb_3ac_00d");
        assert!(prefix(&format!("dev/{}", "x".repeat(500))).len() <= "dev.".len() + MAX_SEGMENT_BYTES);
    }

    proptest! {
        #[test]
        fn i_16_two_branches_never_share_a_segment(a in ".{1,90}", b in ".{1,90}") {
            let (left, right) = (segment(&a), segment(&b));
            prop_assert_eq!(left == right, a == b);
            prop_assert!(left.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || b"-_".contains(&c)));
        }

        #[test]
        fn i_16_long_branches_differ_by_their_digest(head in "[a-z]{100}", a in "[a-z]{1,8}", b in "[a-z]{1,8}") {
            prop_assert_eq!(segment(&format!("{head}{a}")) == segment(&format!("{head}{b}")), a == b);
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,200}") {
            _ = Prefix::parse(&text);
        }
    }
}
