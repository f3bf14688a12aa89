//! Unix milliseconds as RFC 3339 writes them.

const DAY_MS: u64 = 86_400_000;
/// Days from 1 March of the year 0 to 1 January 1970.
const DAYS_BEFORE_1970: u64 = 719_468;
const DAYS_OF_400_YEARS: u64 = 146_097;

/// `2026-11-30T12:00:00.000Z`. Years count from March in between, so that the day that some years have more is the
/// last one.
pub(super) fn rfc3339(unix_ms: u64) -> String {
    let (days, ms) = (unix_ms / DAY_MS + DAYS_BEFORE_1970, unix_ms % DAY_MS);
    let (era, day) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + next_year;
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_days() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_764_504_000_123, "2025-11-30T12:00:00.123Z"),
            (1_798_761_599_000, "2026-12-31T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(ms), text);
        }
    }
}
