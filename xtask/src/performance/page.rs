//! The page: prose by hand, and between marks what is generated.

use anyhow::{Context, bail};

const BEGIN: &str = "<!-- figures: ";
const BEGIN_END: &str = " -->";
const END: &str = "<!-- end of figures -->";

/// The page with each block as `block` makes it, by the name in its mark.
pub(super) fn filled(page: &str, block: impl Fn(&str) -> Option<String>) -> anyhow::Result<String> {
    let mut out = String::new();
    let mut lines = page.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        out.push_str(line);
        out.push('\n');
        let Some(name) = line.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(BEGIN_END)) else {
            continue;
        };
        let text =
            block(name).with_context(|| format!("line {}: no figures are called `{name}`", index + 1))?;
        if !lines.any(|(_, line)| line == END) {
            bail!("line {}: the figures `{name}` have no `{END}`", index + 1);
        }
        out.push('\n');
        if !text.is_empty() {
            out.push_str(&text);
            out.push('\n');
        }
        out.push_str(END);
        out.push('\n');
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_between_marks_is_replaced_and_nothing_else() {
        let block = |name: &str| (name == "a").then(|| "| new |\n".to_owned());
        let page = "before\n<!-- figures: a -->\nold\n<!-- end of figures -->\nafter\n";
        let filled_once = filled(page, block).unwrap();
        assert_eq!(filled_once, "before\n<!-- figures: a -->\n\n| new |\n\n<!-- end of figures -->\nafter\n");
        assert_eq!(filled(&filled_once, block).unwrap(), filled_once);
    }

    #[test]
    fn a_mark_that_is_wrong_is_named() {
        let error =
            |page: &str| filled(page, |name| (name == "a").then(String::new)).unwrap_err().to_string();
        assert_eq!(error("\n<!-- figures: b -->\n"), "line 2: no figures are called `b`");
        assert_eq!(
            error("<!-- figures: a -->\nrest\n"),
            "line 1: the figures `a` have no `<!-- end of figures -->`"
        );
    }
}
