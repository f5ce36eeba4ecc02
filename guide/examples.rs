//! Completes the examples of a page.
//!
//! Lines that rustdoc hides (`# …`) are in plain sight wherever else a page is read. So the page has
//! none: what stands around every example is added here, and what an example needs besides stands
//! in a comment before it, which no reader of the page sees:
//!
//! ```text
//! <!-- before: let lab = Lab::new(); -->
//! ```

const BEFORE: &str = "<!-- before: ";
const MAIN: &str = "# #[tokio::main(flavor = \"current_thread\", start_paused = true)]\n\
     # async fn main() -> std::result::Result<(), seriatim::Failure> {\n";
const END: &str = "# Ok(()) }\n";

/// The page with complete examples. An error begins with the line that it is about.
pub(crate) fn complete(page: &str) -> Result<String, String> {
    let (mut text, mut before) = (String::new(), String::new());
    let mut lines = page.lines().enumerate();
    while let Some((i, line)) = lines.next() {
        if let Some(code) = line.strip_prefix(BEFORE) {
            let code = code.strip_suffix(" -->").ok_or(format!("{}: ends without -->", i + 1))?;
            before += &format!("# {code}\n");
            continue;
        }
        text += &format!("{line}\n");
        if line != "```rust" {
            continue;
        }
        let block: Vec<(usize, &str)> =
            lines.by_ref().take_while(|(_, line)| *line != "```").collect();
        if let Some((i, _)) = block.iter().find(|(_, line)| line.trim_start().starts_with("# ")) {
            return Err(format!("{}: a hidden line: put it into {BEFORE}… -->", i + 1));
        }
        let has_main = block.iter().any(|(_, line)| is_main(line));
        if !has_main {
            text += MAIN;
            text += &std::mem::take(&mut before);
        }
        for (_, line) in block {
            text += &format!("{line}\n");
            if is_main(line) {
                text += &std::mem::take(&mut before);
            }
        }
        text += if has_main { "" } else { END };
        text += "```\n";
    }
    match before.is_empty() {
        true => Ok(text),
        false => Err(format!("{}: no example follows {BEFORE}", page.lines().count())),
    }
}

fn is_main(line: &str) -> bool {
    line.contains("fn main(")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_gets_what_it_needs_and_the_page_shows_nothing_of_it() {
        let page = "a\n<!-- before: let x = 1; -->\n```rust\nassert_eq!(x, 1);\n```\nb\n";
        let tests = complete(page).unwrap();
        let end = "# let x = 1;\nassert_eq!(x, 1);\n# Ok(()) }\n```\nb\n";
        assert!(
            tests.starts_with("a\n```rust\n# #[tokio::main") && tests.ends_with(end),
            "{tests}"
        );
        let own = "<!-- before: setup(); -->\n```rust\nfn main() {\n}\n```\n";
        assert_eq!(complete(own).unwrap(), "```rust\nfn main() {\n# setup();\n}\n```\n");
    }

    #[test]
    fn hidden_lines_and_comments_without_an_example_are_refused() {
        assert!(complete("```rust\n# use a;\n```\n").unwrap_err().starts_with("2: a hidden line"));
        assert!(complete("<!-- before: x -->\n").unwrap_err().contains("no example follows"));
    }
}
