//! Header `Authentication-Results` (RFC 8601): the findings of the account's own server about the
//! sender of a mail.
//!
//! Anybody can write such a header. A server removes those that bear its own name, so only the ones
//! with the configured name count.

use holdfast_directory::channel::MailAuthentication;

/// Whether a mail whose sender has this domain may count as the sender's.
#[must_use]
pub fn is_authentic<'a>(
    demand: MailAuthentication,
    authserv: &str,
    headers: impl Iterator<Item = &'a str>,
    domain: &str,
) -> bool {
    let mut own = headers.filter_map(|header| results_of(header, authserv)).peekable();
    match demand {
        MailAuthentication::Off => true,
        MailAuthentication::IfPresent if own.peek().is_none() => true,
        MailAuthentication::IfPresent | MailAuthentication::Required => {
            own.any(|results| results.iter().any(|result| is_pass(result, domain)))
        }
    }
}

/// Returns the results in a header of this server.
fn results_of(header: &str, authserv: &str) -> Option<Vec<String>> {
    let plain = without_comments(header);
    let mut parts = plain.split(';').map(|part| part.trim().to_ascii_lowercase());
    // The name may be followed by a version.
    let name = parts.next()?;
    let name = name.split_ascii_whitespace().next()?.to_owned();
    (name == authserv.to_ascii_lowercase()).then(|| parts.collect())
}

/// Whether one result, as in `dkim=pass header.d=example.com`, vouches for the domain.
fn is_pass(result: &str, domain: &str) -> bool {
    let mut words = result.split_ascii_whitespace();
    let properties: &[&str] = match words.next() {
        Some("dmarc=pass") => &["header.from="],
        Some("dkim=pass") => &["header.d=", "header.i="],
        Some("spf=pass") => &["smtp.mailfrom=", "smtp.from="],
        _ => return false,
    };
    words.any(|word| {
        let value = properties.iter().find_map(|property| word.strip_prefix(property));
        let value = value.map(|value| value.trim_matches('"').rsplit('@').next().unwrap_or(value));
        value.is_some_and(|vouching| is_same_or_parent(vouching, domain))
    })
}

/// Whether the domain is the vouching one, or below it.
fn is_same_or_parent(vouching: &str, domain: &str) -> bool {
    let is_below = || domain.strip_suffix(vouching).is_some_and(|rest| rest.ends_with('.'));
    // A top-level domain vouches for nobody.
    vouching == domain || (vouching.contains('.') && is_below())
}

fn without_comments(header: &str) -> String {
    let mut depth = 0_u32;
    let mut plain = String::with_capacity(header.len());
    for letter in header.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ if depth == 0 => plain.push(letter),
            _ => {}
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_let_in(demand: MailAuthentication, headers: &[&str]) -> bool {
        is_authentic(demand, "mx.example.org", headers.iter().copied(), "example.com")
    }

    #[test]
    fn the_own_servers_pass_lets_in_and_its_fail_does_not() {
        for (header, passes) in [
            (" mx.example.org; spf=pass smtp.mailfrom=anna@example.com", true),
            (" mx.example.org 1; dkim=pass (2048-bit key) header.d=example.com", true),
            (" mx.example.org; dkim=fail; dmarc=pass (p=none) header.from=example.com", true),
            (" MX.example.org; dkim=pass header.i=@Example.com", true),
            (" mx.example.org; spf=fail smtp.mailfrom=anna@example.com", false),
            (" mx.example.org; none", false),
            // Somebody else's domain passed.
            (
                " mx.example.org; spf=pass smtp.mailfrom=eve@evil.net; dkim=pass header.d=evil.net",
                false,
            ),
            (" mx.example.org; dkim=pass header.d=notexample.com", false),
            (" mx.example.org; dkim=pass header.d=com", false),
            (" mx.example.org; spf=fail (dkim=pass header.d=example.com)", false),
        ] {
            assert_eq!(is_let_in(MailAuthentication::IfPresent, &[header]), passes, "{header}");
            assert_eq!(is_let_in(MailAuthentication::Required, &[header]), passes, "{header}");
            assert!(is_let_in(MailAuthentication::Off, &[header]));
        }
    }

    #[test]
    fn what_another_server_says_does_not_count() {
        let forged = " mx.evil.net; dkim=pass header.d=example.com";

        assert!(is_let_in(MailAuthentication::IfPresent, &[forged]));
        assert!(!is_let_in(MailAuthentication::Required, &[forged]));
        assert!(!is_let_in(MailAuthentication::Required, &[]));
        let own = " mx.example.org; dkim=fail";
        assert!(!is_let_in(MailAuthentication::IfPresent, &[forged, own]));
    }

    #[test]
    fn a_parent_vouches_for_its_children_and_not_the_other_way_round() {
        assert!(is_same_or_parent("example.com", "mail.example.com"));
        assert!(!is_same_or_parent("eve.example.com", "example.com"));
    }
}
