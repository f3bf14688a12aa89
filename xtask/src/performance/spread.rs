//! Figures of several rounds, and how numbers are written.

/// Lowest, median and highest of several rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub(super) lowest: f64,
    pub(super) median: f64,
    pub(super) highest: f64,
}

impl Spread {
    /// None of nothing. What is not a number does not count.
    pub(super) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.retain(|value| value.is_finite());
        values.sort_by(f64::total_cmp);
        let (&lowest, &highest) = (values.first()?, values.last()?);
        let last = values.len() - 1;
        let median = f64::midpoint(values[last / 2], values[last.div_ceil(2)]);
        Some(Self { lowest, median, highest })
    }

    /// Each divided by one number.
    pub(super) fn over(self, divisor: f64) -> Self {
        Self { lowest: self.lowest / divisor, median: self.median / divisor, highest: self.highest / divisor }
    }

    /// `0.23 (0.22-0.25)`, or `0.23` where all are that.
    pub(super) fn as_ratio(self) -> String {
        self.written(ratio)
    }

    /// `1,234 (1,200-1,300)`, or `1,234` where all are that.
    pub(super) fn as_numbers(self) -> String {
        self.written(number)
    }

    fn written(self, write: fn(f64) -> String) -> String {
        let [lowest, median, highest] = [self.lowest, self.median, self.highest].map(write);
        if lowest == highest { median } else { format!("{median} ({lowest}-{highest})") }
    }
}

/// Two digits after the point, or as many as the first two that say something.
pub(super) fn ratio(value: f64) -> String {
    if value > 0.0 && value < 0.095 { format!("{value:.3}") } else { format!("{value:.2}") }
}

/// Three digits that count, thousands apart: `12,034`, `46.2`, `7.9`, `0.042`.
pub(super) fn number(value: f64) -> String {
    let size = value.abs();
    let digits = match size {
        _ if size >= 99.95 || size == 0.0 => 0,
        _ if size >= 9.995 => 1,
        _ if size >= 0.0995 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    let text = if digits > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    let whole = text.find('.').unwrap_or(text.len());
    let mut out = String::new();
    for (index, digit) in text.char_indices() {
        let left = whole.saturating_sub(index);
        if index > 0 && left > 0 && left % 3 == 0 && !out.ends_with('-') {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_of_two_is_between_them() {
        let spread = Spread::of(vec![3.0, f64::NAN, 1.0]).unwrap();
        assert_eq!((spread.lowest, spread.median, spread.highest), (1.0, 2.0, 3.0));
        assert_eq!(Spread::of(vec![f64::NAN]), None);
        assert_eq!(spread.over(4.0).as_ratio(), "0.50 (0.25-0.75)");
        assert_eq!(ratio(0.0234), "0.023");
        assert_eq!(Spread::of(vec![1_000.0]).unwrap().as_numbers(), "1,000");
    }

    #[test]
    fn numbers_have_three_digits_that_count() {
        let written =
            [12_034.4, 1_234_567.0, 999.6, 46.23, 7.901, 3.0, 0.25, 0.0421, 0.0, -1_500.0].map(number);
        assert_eq!(
            written,
            ["12,034", "1,234,567", "1,000", "46.2", "7.9", "3", "0.25", "0.042", "0", "-1,500"]
        );
    }
}
