//! Author of a mail: the one address in its header `From`.
//!
//! Programs read unusual forms of this header in different ways, so that the address which a server
//! checked may not be the one that is read here. Whatever is unusual has no author.

use super::lexer::{Lexer, MalformedHeader, has_control_characters, is_domain};

/// Maximum length of an address, in bytes.
const MAX_ADDRESS_BYTES: usize = 254;

/// Returns the address in the value of a header `From`, in lower case: one mailbox, not a group,
/// without a quoted or encoded local part, at a domain as it stands in DNS.
pub(super) fn author_address(value: &str) -> Option<String> {
    if has_control_characters(value) {
        return None;
    }
    mailbox(&mut Lexer::new(value)).ok().filter(|address| is_address(address))
}

/// Whether a text is an address without quotes, in which nothing is decoded.
pub(super) fn is_address(text: &str) -> bool {
    let is_atom = |atom: &str| !atom.is_empty() && atom.chars().all(is_in_atom);
    text.len() <= MAX_ADDRESS_BYTES
        && text.split_once('@').is_some_and(|(local, domain)| {
            local.split('.').all(is_atom) && !local.contains("=?") && is_domain(domain)
        })
}

fn mailbox(lexer: &mut Lexer<'_>) -> Result<String, MalformedHeader> {
    let mut words = Vec::new();
    loop {
        lexer.skip_comments()?;
        match lexer.peek() {
            None => break,
            Some('<') => {
                lexer.take('<');
                lexer.skip_comments()?;
                let address = lexer.take_while(is_in_address).to_lowercase();
                lexer.skip_comments()?;
                let is_closed = lexer.take('>');
                lexer.skip_comments()?;
                // A name has no address in it.
                let is_plain = words.iter().all(|word: &String| !word.contains('@'));
                return match is_closed && is_plain && lexer.is_at_end() {
                    true => Ok(address),
                    false => Err(MalformedHeader),
                };
            }
            // A quoted string is part of a name. As an address it is not accepted.
            Some('"') => {
                lexer.quoted_string()?;
                words.push(String::new());
            }
            Some(_) => match lexer.take_while(|letter| is_in_address(letter) || !letter.is_ascii())
            {
                "" => return Err(MalformedHeader),
                word => words.push(word.to_lowercase()),
            },
        }
    }
    match words.as_slice() {
        [address] => Ok(address.clone()),
        _ => Err(MalformedHeader),
    }
}

/// Whether an atom (RFC 5322, section 3.2.3) may have this character.
fn is_in_atom(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(letter)
}

fn is_in_address(letter: char) -> bool {
    is_in_atom(letter) || matches!(letter, '.' | '@')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_plain_address_is_the_authors() {
        for (value, address) in [
            (" Anna B. Smith <Anna@Example.com>\r\n", "anna@example.com"),
            ("anna@example.com (Anna (at work))", "anna@example.com"),
            (
                "=?utf-8?q?Anna?= \"B, C; <eve@evil.net>\"\r\n <anna+x@xn--bcher-kva.example>",
                "anna+x@xn--bcher-kva.example",
            ),
            ("Jörg <j@x>", "j@x"),
            ("\"anna@example.com\" <eve@evil.net>", "eve@evil.net"),
        ] {
            assert_eq!(author_address(value).as_deref(), Some(address), "{value}");
        }
    }

    #[test]
    fn what_another_program_may_read_otherwise_has_no_author() {
        for value in [
            "",
            "<>",
            "Anna",
            "anna@example.com, eve@evil.net",
            "<anna@example.com> <eve@evil.net>",
            "anna@example.com <eve@evil.net>",
            "<anna@example.com> eve@evil.net",
            "Friends: anna@example.com;",
            "<@evil.net:anna@example.com>",
            "\"anna\"@example.com",
            "\"anna@example.com",
            "<anna@example.com",
            "=?utf-8?q?anna=40example.com?=",
            "<=?utf-8?q?anna?=@example.com>",
            "anna@example.com.",
            "anna@exаmple.com",
            "anna@bücher.example",
            "anna@[127.0.0.1]",
            "anna@example..com",
            ".anna@example.com",
            "anna@@example.com",
            "anna@example.com\0",
            "anna\u{7f}@example.com",
            "anna @example.com",
            "anna@example.com (",
            "a b@example.com",
            "unverified:anna@example.com",
        ] {
            assert_eq!(author_address(value), None, "{value}");
        }
    }

    proptest! {
        #[test]
        fn any_value_has_a_plain_address_or_none(value in any::<String>(), text in "[a@.<>,;:\"\\\\() =?]{0,30}") {
            for address in [author_address(&value), author_address(&text)].into_iter().flatten() {
                prop_assert!(is_address(&address) && address.is_ascii());
            }
        }

        #[test]
        fn the_name_beside_an_address_is_not_the_author(name in "[ -~]{0,40}") {
            let quoted = name.replace('\\', "\\\\").replace('"', "\\\"");
            let address = author_address(&format!("\"{quoted}\" <eve@evil.net>"));
            prop_assert_eq!(address.as_deref(), Some("eve@evil.net"));
        }
    }
}
