//! Parser for the header `Authentication-Results` (RFC 8601, section 2.2).
//!
//! Strict about everything that separates one result from another. Lenient in three places where
//! common servers differ from the grammar: values may have `/` and `=` in them, properties may lack
//! their type (`action=none`), and the name of the server may be missing (Microsoft 365).

use crate::channels::email::lexer::{Lexer, MalformedHeader, has_control_characters};

/// Maximum number of results in a header. More are malformed.
const MAX_RESULTS: usize = 100;

/// Maximum number of properties of a result. More are malformed.
const MAX_PROPERTIES: usize = 100;

/// Version of the header that is understood.
const VERSION: &str = "1";

/// Contents of a header. Names are in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::channels::email) struct AuthenticationResults {
    /// `authserv-id`, the name of the server that wrote the header; `None` if it writes none.
    pub server: Option<String>,
    pub results: Vec<MethodResult>,
}

/// Result of one method, as in `dkim=pass header.d=example.com`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::channels::email) struct MethodResult {
    pub method: String,
    pub result: String,
    properties: Vec<(String, String)>,
}

impl MethodResult {
    pub(super) fn is(&self, method: &str, result: &str) -> bool {
        self.method == method && self.result == result
    }

    /// Value of a property in lower case; `None` if it is absent, or there is more than one.
    pub(super) fn property(&self, name: &str) -> Option<String> {
        let mut values = self.properties.iter().filter(|(known, _)| known == name);
        let (_, value) = values.next()?;
        values.next().is_none().then(|| value.to_ascii_lowercase())
    }

    pub(super) fn has_property(&self, name: &str) -> bool {
        self.properties.iter().any(|(known, _)| known == name)
    }
}

impl AuthenticationResults {
    /// Parses the value of a header.
    pub(in crate::channels::email) fn parse(value: &str) -> Result<Self, MalformedHeader> {
        if has_control_characters(value) {
            return Err(MalformedHeader);
        }
        let mut lexer = Lexer::new(value);
        lexer.skip_comments()?;
        let server = server_name(&mut lexer)?;
        let mut results = Vec::new();
        // Without a name, the first result stands at the beginning.
        let mut is_first = server.is_none();
        loop {
            lexer.skip_comments()?;
            if lexer.is_at_end() {
                break;
            }
            if !is_first && !lexer.take(';') {
                return Err(MalformedHeader);
            }
            is_first = false;
            lexer.skip_comments()?;
            // Some servers end the header with a semicolon.
            if lexer.is_at_end() {
                break;
            }
            results.push(method_result(&mut lexer)?);
            if results.len() > MAX_RESULTS {
                return Err(MalformedHeader);
            }
        }
        // `none` stands alone.
        let is_none = |result: &MethodResult| result.method == "none" && result.result.is_empty();
        if results.len() == 1 && server.is_some() {
            results.retain(|result| !is_none(result));
        }
        if results.iter().any(|result| result.result.is_empty()) {
            return Err(MalformedHeader);
        }
        Ok(Self { server, results })
    }
}

/// Takes the server's name and the version; `None` if a result stands in their place.
fn server_name(lexer: &mut Lexer<'_>) -> Result<Option<String>, MalformedHeader> {
    let begin = lexer.clone();
    let name = match lexer.peek() {
        Some('"') => lexer.quoted_string()?,
        _ => lexer.take_while(is_token).to_owned(),
    };
    if name.is_empty() {
        return Err(MalformedHeader);
    }
    let has_space = lexer.skip_comments()?;
    match lexer.peek() {
        None | Some(';') => return Ok(Some(name.to_ascii_lowercase())),
        Some('=' | '/') => {
            *lexer = begin;
            return Ok(None);
        }
        Some(_) if !has_space => return Err(MalformedHeader),
        Some(_) => {}
    }
    let version = lexer.take_while(|letter| letter.is_ascii_digit());
    lexer.skip_comments()?;
    match lexer.peek() {
        None | Some(';') if version == VERSION => Ok(Some(name.to_ascii_lowercase())),
        _ => Err(MalformedHeader),
    }
}

/// Takes a result with its properties, up to a semicolon or the end. `none` has no result.
fn method_result(lexer: &mut Lexer<'_>) -> Result<MethodResult, MalformedHeader> {
    let method = keyword(lexer)?;
    lexer.skip_comments()?;
    if lexer.take('/') {
        lexer.skip_comments()?;
        if lexer.take_while(|letter| letter.is_ascii_digit()) != VERSION {
            return Err(MalformedHeader);
        }
        lexer.skip_comments()?;
    }
    let mut result = MethodResult { method, result: String::new(), properties: Vec::new() };
    if !lexer.take('=') {
        return match (result.method.as_str(), lexer.peek()) {
            ("none", None | Some(';')) => Ok(result),
            _ => Err(MalformedHeader),
        };
    }
    lexer.skip_comments()?;
    result.result = keyword(lexer)?;
    loop {
        let has_space = lexer.skip_comments()?;
        match lexer.peek() {
            None | Some(';') => return Ok(result),
            Some(_) if !has_space => return Err(MalformedHeader),
            Some(_) => {}
        }
        result.properties.push(property(lexer)?);
        if result.properties.len() > MAX_PROPERTIES {
            return Err(MalformedHeader);
        }
    }
}

/// Takes a property, as in `header.d=example.com`, or a reason.
fn property(lexer: &mut Lexer<'_>) -> Result<(String, String), MalformedHeader> {
    let mut name = keyword(lexer)?;
    lexer.skip_comments()?;
    if lexer.take('.') {
        lexer.skip_comments()?;
        let part = lexer.take_while(|letter| is_keyword(letter) || letter == '.');
        if part.is_empty() {
            return Err(MalformedHeader);
        }
        name = format!("{name}.{}", part.to_ascii_lowercase());
        lexer.skip_comments()?;
    }
    if !lexer.take('=') {
        return Err(MalformedHeader);
    }
    lexer.skip_comments()?;
    Ok((name, value(lexer)?))
}

/// Takes a value: words and quoted strings without space between them, as `"a b"@example.com`. It
/// may be empty.
fn value(lexer: &mut Lexer<'_>) -> Result<String, MalformedHeader> {
    let mut value = String::new();
    loop {
        match lexer.peek() {
            Some('"') => value.push_str(&lexer.quoted_string()?),
            Some(letter) if is_in_value(letter) => value.push_str(lexer.take_while(is_in_value)),
            _ => return Ok(value),
        }
    }
}

fn keyword(lexer: &mut Lexer<'_>) -> Result<String, MalformedHeader> {
    match lexer.take_while(is_keyword) {
        "" => Err(MalformedHeader),
        word => Ok(word.to_ascii_lowercase()),
    }
}

const fn is_keyword(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_')
}

/// Whether a token (RFC 2045) may have this character.
fn is_token(letter: char) -> bool {
    letter.is_ascii_graphic() && !"()<>@,;:\\\"/[]?=".contains(letter)
}

fn is_in_value(letter: char) -> bool {
    !letter.is_control() && letter != ' ' && !"()\";".contains(letter)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(value: &str) -> AuthenticationResults {
        AuthenticationResults::parse(value).unwrap_or_else(|_| panic!("malformed: {value}"))
    }

    fn shown(header: &AuthenticationResults) -> Vec<String> {
        let result = |result: &MethodResult| {
            let properties =
                result.properties.iter().map(|(name, value)| format!(" {name}={value}"));
            format!("{}={}{}", result.method, result.result, properties.collect::<String>())
        };
        header.results.iter().map(result).collect()
    }

    #[test]
    fn a_header_is_read_with_its_comments_quotes_and_folding() {
        for (value, server, results) in [
            (" mx.example.org; none", Some("mx.example.org"), vec![]),
            (
                " MX.example.org 1;\r\n\tDKIM=Pass (2048-bit key) Header.D=Example.com\r\n",
                Some("mx.example.org"),
                vec!["dkim=pass header.d=Example.com"],
            ),
            (
                " \"mx.example.org\" (a (nested \\) ) one) 1 ; spf = fail reason=\"a; dkim=pass\"",
                Some("mx.example.org"),
                vec!["spf=fail reason=a; dkim=pass"],
            ),
            (
                " mx; spf=pass smtp . mailfrom = \"a; dkim=pass header.d=x \"@evil.net;",
                Some("mx"),
                vec!["spf=pass smtp.mailfrom=a; dkim=pass header.d=x @evil.net"],
            ),
            (
                "mx; dkim/1=pass header.b=Ab/c+d= header.i=@x.example; dmarc=pass(p=NONE) header.from=x.example",
                Some("mx"),
                vec![
                    "dkim=pass header.b=Ab/c+d= header.i=@x.example",
                    "dmarc=pass header.from=x.example",
                ],
            ),
            (
                "spf=pass smtp.mailfrom=a.example;dmarc=pass action=none header.from=a.example",
                None,
                vec![
                    "spf=pass smtp.mailfrom=a.example",
                    "dmarc=pass action=none header.from=a.example",
                ],
            ),
            (
                "mx; spf=pass (dkim=pass; header.d=x)smtp.helo=",
                Some("mx"),
                vec!["spf=pass smtp.helo="],
            ),
        ] {
            let header = parsed(value);
            assert_eq!(
                (header.server.as_deref(), shown(&header)),
                (server, results.into_iter().map(str::to_owned).collect()),
                "{value}"
            );
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_malformed() {
        for value in [
            "",
            ";",
            "=pass",
            "mx 2; dkim=pass",
            "mx 1 mx 1; dkim=pass",
            "mx mx; dkim=pass",
            "mx; dkim",
            "mx; none; dkim=pass",
            "mx; dkim=pass header.d",
            "mx; dkim=pass header.=x",
            "mx; dkim/2=pass",
            "mx; dkim=pass (x",
            "mx; dkim=pass reason=\"x",
            "mx; dkim=pass\0 header.d=x",
            "mx\u{7}; none",
            "mx; dkim=pass header.d=x) dmarc=pass",
            "mx; dkim=passheader.d=\"x\"y\"",
            "m@x; none",
            "mx; dkim=\"pass\"",
            "mx; =pass",
            "mx dkim=pass",
        ] {
            assert_eq!(AuthenticationResults::parse(value), Err(MalformedHeader), "{value}");
        }
    }

    /// Space that may stand between two parts of a header.
    fn space() -> impl Strategy<Value = String> {
        prop_oneof![
            Just(" ".to_owned()),
            Just("\r\n\t".to_owned()),
            r#"[ -'*-\[\]-~]{0,12}"#.prop_map(|text| format!(" ({text}) ")),
            r#"[ -'*-\[\]-~]{0,6}"#.prop_map(|text| format!(" (a ({text}) \\) b)\r\n ")),
        ]
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "\\PC{0,200}", more in any::<String>()) {
            let _ = AuthenticationResults::parse(&text);
            let _ = AuthenticationResults::parse(&format!("mx; spf=pass smtp.mailfrom={text}{more}"));
        }

        /// A sender chooses the value of `smtp.mailfrom`; servers quote what needs it.
        #[test]
        fn a_quoted_value_makes_no_further_result(text in "[ -~]{0,60}") {
            let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
            let header = parsed(&format!("mx; spf=fail smtp.mailfrom=\"{quoted}\"@x.example"));

            prop_assert_eq!(shown(&header), [format!("spf=fail smtp.mailfrom={text}@x.example")]);
        }

        #[test]
        fn comments_and_folding_change_nothing(spaces in proptest::collection::vec(space(), 9), value in "[a-z0-9.@/+-]{1,20}") {
            let s = &spaces;
            let text = format!(
                "{}mx{}1{};{}dkim{}={}pass{}header.d={value}{};{}spf=fail",
                s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8],
            );
            prop_assert_eq!(parsed(&text), parsed(&format!("mx; dkim=pass header.d={value}; spf=fail")));
        }
    }
}
