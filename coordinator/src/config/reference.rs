//! The documented reference `dais.toml`, printed from the table of keys.

use super::keys::{SECTIONS, Shown};

/// A `dais.toml` with every key, its meaning, unit and default; it can be used as it stands.
///
/// Keys without a default, and sections that need none, are commented out; so are those that this version
/// knows but does not serve.
pub(super) fn render() -> String {
    let mut text = String::from(
        "# Dais reference configuration: every key with its default.\n\
         # Each key can also be given as DAIS_SECTION__KEY in the environment (items of lists: DAIS_APP__0__CODE; lists\n\
         # separated by commas). Flags win over the environment, the environment over this file. A key that says\n\
         # `secret` can be given as the path of a file under the name key_file; a relative path starts at this file.\n",
    );
    for (section, list, keys) in SECTIONS {
        // A section of which nothing can be used yet must not stand there as if it could.
        let served = keys.iter().any(|key| !matches!(key.shown, Shown::Later(_)));
        let mark = if served { "" } else { "# " };
        let header = if *list { format!("[[{section}]]") } else { format!("[{section}]") };
        text.push_str(&format!("\n{mark}{header}\n"));
        for key in *keys {
            let secret = if key.secret { " (secret)" } else { "" };
            for (n, line) in wrap(&format!("{}{secret}", key.doc), 108).into_iter().enumerate() {
                text.push_str(if n == 0 { "\n# " } else { "# " });
                text.push_str(&line);
                text.push('\n');
            }
            text.push_str(&match key.shown {
                Shown::Default(value) | Shown::Required(value) => format!("{} = {value}\n", key.name),
                Shown::Optional(value) => format!("# {} = {value}\n", key.name),
                Shown::Later(feature) => format!("# {}: known, not built yet ({feature})\n", key.name),
            });
        }
    }
    text
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
