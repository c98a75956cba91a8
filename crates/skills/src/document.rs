//! YAML and JSON5 parsers with limits.
//!
//! The limits are those of [`holdfast_agent::yaml`].

mod limited_value;

use holdfast_agent::yaml::{MAX_DOCUMENT_BYTES, MAX_DOCUMENT_DEPTH, MAX_DOCUMENT_NODES};
use serde_json::Value;

use self::limited_value::LimitedValue;
use crate::Flaw;

/// Maximum number of characters of a parser's message in an error.
const MAX_PARSER_MESSAGE_CHARS: usize = 160;

/// Parses YAML, which includes JSON.
pub(crate) fn parse_yaml(text: &str) -> Result<Value, Flaw> {
    check_size(text)?;
    holdfast_agent::yaml::parse_yaml(text).map_err(Flaw::of)
}

/// Parses JSON5: JSON with comments, unquoted keys, single quotes and trailing commas.
pub(crate) fn parse_json5(text: &str) -> Result<Value, Flaw> {
    check_size(text)?;
    let LimitedValue(value) =
        json5::from_str(text).map_err(|error| Flaw::of(parser_message(&error.to_string())))?;
    Ok(value)
}

fn check_size(text: &str) -> Result<(), Flaw> {
    if text.len() > MAX_DOCUMENT_BYTES {
        return Err(Flaw::of(format!(
            "has {} bytes, and {MAX_DOCUMENT_BYTES} is the most: put what is long into the text below it",
            text.len()
        )));
    }
    Ok(())
}

/// A parser's message on one line, shortened.
fn parser_message(text: &str) -> String {
    let line = holdfast_tools::clean(text).split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(MAX_PARSER_MESSAGE_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn yaml_and_json_are_read_alike() {
        let wanted = json!({ "name": "x", "list": ["a", "b"], "on": true });

        assert_eq!(parse_yaml("name: x\nlist: [a, b]\non: true\n").unwrap(), wanted);
        assert_eq!(parse_yaml("name: y").unwrap(), json!({ "name": "y" }));
        assert_eq!(parse_yaml(r#"{"name": "x", "list": ["a", "b"], "on": true}"#).unwrap(), wanted);
        let json5_text = "{ // a comment\n name: 'x', list: ['a', 'b',], on: true, }";
        assert_eq!(parse_json5(json5_text).unwrap(), wanted);
    }

    #[test]
    fn what_is_no_document_is_refused_with_its_place() {
        let error = parse_yaml("name: x\nlist: [a\n").unwrap_err().to_string();
        assert!(error.starts_with("line ") && error.contains("column"), "{error}");

        assert!(parse_json5("{ name: ").is_err());
        assert!(parse_yaml("a: 1\na: 2\n").is_err(), "two of the same key");
        assert!(parse_yaml("a: 1\n---\nb: 2\n").is_err(), "two documents");
    }

    #[test]
    fn a_few_bytes_that_mean_gigabytes_are_refused() {
        let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
        for level in 1..10 {
            let above = level - 1;
            bomb.push_str(&format!(
                "a{level}: &a{level} [{}]\n",
                vec![format!("*a{above}"); 10].join(",")
            ));
        }
        assert!(parse_yaml(&bomb).is_err());

        let wide = format!("a: [{}]\n", vec!["x"; MAX_DOCUMENT_NODES + 1].join(","));
        assert!(parse_yaml(&wide).is_err());
        assert!(parse_yaml(&format!("a: \"{}\"\n", "x".repeat(MAX_DOCUMENT_BYTES))).is_err());
        assert!(parse_json5(&format!("\"{}\"", "x".repeat(MAX_DOCUMENT_BYTES))).is_err());
    }

    /// Texts whose brackets outnumber those that a reader sees who looks for brackets only.
    #[test]
    fn brackets_in_quotes_and_comments_close_nothing() {
        for once in [
            "[\"]\",",
            "['}',",
            "[/*]*/",
            "[//]\n",
            "[//]\u{2028}",
            "[//]\r",
            "{a:/*}*/",
            "{'}':",
            "{\"\\\"}\":",
            "{a:'\\'}',b:",
            "['\\\n]',",
            "[/*//*/",
            "{\\u0061:",
            "[[],[],",
            "[{},{},",
            "[\u{feff}",
            "[-1,",
            "[NaN,']',",
        ] {
            for times in [33, 3_000, 40_000] {
                let text = once.repeat(times);
                if text.len() > MAX_DOCUMENT_BYTES {
                    continue;
                }
                let error = parse_json5(&text).unwrap_err().to_string();
                assert!(error.contains("nests more than 32 levels deep"), "{once}: {error}");
                let _ = parse_yaml(&text).unwrap_err();
            }
        }
        assert!(parse_json5(&format!("{}{}", "[\"]\",".repeat(31), "]".repeat(31))).is_ok());
        assert!(parse_json5("[\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\"]").is_ok());
    }

    #[test]
    fn yaml_that_nests_in_any_manner_ends_nothing() {
        for once in [
            "? ",
            "- ? ",
            "[{a: ",
            "{? ",
            "[? ",
            "{[",
            "[[],",
            "!!seq [",
            "&a [",
            "{\"}\": ",
            "['[', ",
            "[#]\n ",
            "{a: [\"]\", ",
            "- - ",
            "!x ",
            "&a ",
            "<<: ",
            "{<<: {",
            "|\n ",
            "[!!map {? ",
        ] {
            for times in [40, 3_000, 40_000] {
                let text = once.repeat(times);
                if text.len() <= MAX_DOCUMENT_BYTES {
                    let _ = parse_yaml(&text);
                }
            }
        }
        let mut stairs = String::new();
        for step in 0..600 {
            stairs.push_str(&format!("{}a:\n", " ".repeat(step)));
        }
        assert!(parse_yaml(&stairs).is_err());
    }

    #[test]
    fn json5_says_a_key_once_and_not_too_much() {
        assert!(parse_json5("{ a: 1, 'a': 2 }").unwrap_err().to_string().contains("twice"));
        assert!(parse_json5(&format!("[{}]", "0,".repeat(MAX_DOCUMENT_NODES))).is_err());
        assert_eq!(
            parse_json5("[0x10, -1, +.5, NaN, null, 'a\\\nb',]").unwrap(),
            json!([16, -1, 0.5, null, null, "ab"])
        );
        assert!(parse_json5("[] []").is_err());
    }

    #[test]
    fn what_nests_too_deep_is_refused_and_ends_nothing() {
        for deep in [33, 1_000, 100_000] {
            let (open, close) = ("[".repeat(deep), "]".repeat(deep));
            assert!(parse_yaml(&format!("{open}{close}")).is_err(), "{deep}");
            assert!(parse_json5(&format!("{open}{close}")).is_err(), "{deep}");
            assert!(parse_json5(&"{a:".repeat(deep)).is_err(), "{deep}");
            assert!(parse_yaml(&"- ".repeat(deep)).is_err(), "{deep}");
        }
        assert!(parse_json5(&format!("{}{}", "[".repeat(20), "]".repeat(20))).is_ok());
    }
}
