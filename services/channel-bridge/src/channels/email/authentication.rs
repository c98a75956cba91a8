//! Whether a mail is from the person whom it names: the findings of the account's own server, in
//! its headers `Authentication-Results` (RFC 8601).
//!
//! Anybody can write such a header. A server puts its own above all that came with the mail, and
//! removes those that bear its name. So only the topmost headers of the own server count, of each
//! of its names one: a second header of the same name may have come with the mail, although the RFC
//! permits a server to write several. iCloud writes one for each method, each with another name.
//!
//! The address in `From` is the sender's if the server found `dmarc=pass` for its domain, or
//! `dkim=pass` for exactly this domain. DMARC also covers domains above and below it, and the server
//! knows by the public suffix list which ones belong together. `spf=pass` alone is not enough: it is
//! about another address, which anybody who shares the sender's provider may use.

mod header;

use super::lexer::is_domain;

pub(super) use header::{AuthenticationResults, MethodResult};

pub(super) const RESULTS_HEADER: &str = "authentication-results";

/// Names under which the account's own server writes its findings, in lower case. `None` stands for
/// a server that writes no name; `*.example.com` for all names below `example.com`. Numbers in the
/// name of a host count as one: providers have many hosts, as `mx1.example.com` and
/// `mx27.example.com`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnServers(pub Vec<Option<String>>);

impl OwnServers {
    fn contains(&self, server: Option<&str>) -> bool {
        self.0.iter().any(|known| match (known.as_deref(), server) {
            (None, None) => true,
            (Some(known), Some(server)) => match known.strip_prefix('*') {
                Some(parent) => {
                    parent.starts_with('.')
                        && server.len() > parent.len()
                        && server.ends_with(parent)
                }
                None => without_numbers(known) == without_numbers(server),
            },
            (None, Some(_)) | (Some(_), None) => false,
        })
    }
}

/// Replaces the numbers in the name of a host, not in that of its domain.
fn without_numbers(server: &str) -> String {
    let domain = server.rmatch_indices('.').nth(1).map_or(0, |(at, _)| at);
    let (host, domain) = server.split_at(domain);
    let mut pattern = String::with_capacity(server.len());
    for letter in host.chars() {
        match letter.is_ascii_digit() {
            false => pattern.push(letter),
            true if pattern.ends_with('#') => {}
            true => pattern.push('#'),
        }
    }
    pattern + domain
}

/// How sure the own server is of the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    /// The sender's domain vouches for the mail.
    Verified,
    /// The mail came from where mails of the domain come from. Nothing is known about the sender.
    Weak,
    /// The own server wrote nothing.
    Missing,
    /// The own server wrote something, and no pass for the sender's domain is in it.
    Failed,
}

/// Judges a mail by its headers, the topmost first, and the domain of its author.
pub fn finding<'a>(
    headers: impl IntoIterator<Item = (&'a str, &'a str)>,
    own: &OwnServers,
    domain: &str,
) -> Finding {
    let own_headers = own_headers(headers, |server, before| {
        let pattern = |server: &Option<String>| server.as_deref().map(without_numbers);
        own.contains(server.as_deref())
            && before.iter().all(|header| pattern(&header.server) != pattern(server))
    });
    if own_headers.is_empty() {
        return Finding::Missing;
    }
    let results: Vec<&MethodResult> =
        own_headers.iter().flat_map(|header| &header.results).collect();
    let has = |passes: fn(&MethodResult, &str) -> bool| {
        results.iter().any(|result| passes(result, domain))
    };
    let is_contradicted = results.iter().any(|result| {
        result.is("dmarc", "fail") || result.is("dmarc", "pass") && !has_dmarc_pass(result, domain)
    });
    if is_contradicted || !is_domain(domain) {
        Finding::Failed
    } else if has(has_dmarc_pass) || has(has_signature) {
        Finding::Verified
    } else if has(has_spf_pass) {
        Finding::Weak
    } else {
        Finding::Failed
    }
}

/// Whether one of the headers has a pass of any method for the domain.
pub(super) fn vouches_for(headers: &[AuthenticationResults], domain: &str) -> bool {
    headers.iter().flat_map(|header| &header.results).any(|result| {
        has_dmarc_pass(result, domain)
            || has_signature(result, domain)
            || has_spf_pass(result, domain)
    })
}

fn has_dmarc_pass(result: &MethodResult, domain: &str) -> bool {
    result.is("dmarc", "pass") && result.property("header.from").as_deref() == Some(domain)
}

fn has_signature(result: &MethodResult, domain: &str) -> bool {
    result.is("dkim", "pass") && signing_domain(result).as_deref() == Some(domain)
}

fn has_spf_pass(result: &MethodResult, domain: &str) -> bool {
    let sender = result.property("smtp.mailfrom");
    result.is("spf", "pass") && sender.is_some_and(|sender| domain_of(&sender) == domain)
}

/// Returns the headers of the own server: from the topmost one down to the first that is not its
/// own, is malformed, or was written at an earlier hop.
pub(super) fn own_headers<'a>(
    headers: impl IntoIterator<Item = (&'a str, &'a str)>,
    is_own: impl Fn(&Option<String>, &[AuthenticationResults]) -> bool,
) -> Vec<AuthenticationResults> {
    let mut own = Vec::new();
    for (name, value) in headers {
        // Each hop puts its `Received` above the mail as it came.
        if name.eq_ignore_ascii_case("received") && !own.is_empty() {
            break;
        }
        if !name.eq_ignore_ascii_case(RESULTS_HEADER) {
            continue;
        }
        match AuthenticationResults::parse(value) {
            Ok(header) if is_own(&header.server, &own) => own.push(header),
            Ok(_) | Err(_) => break,
        }
    }
    own
}

/// Domain whose signature was verified. Servers write it as `header.d`, or only the identity
/// (`header.i`), which is of this domain or below it.
fn signing_domain(result: &MethodResult) -> Option<String> {
    if result.has_property("header.d") {
        return result.property("header.d");
    }
    let identity = result.property("header.i")?;
    identity.contains('@').then(|| domain_of(&identity).to_owned())
}

/// Domain of an address; a domain alone is returned as it is.
fn domain_of(address: &str) -> &str {
    address.rsplit_once('@').map_or(address, |(_, domain)| domain)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOMAIN: &str = "example.com";

    fn own(names: &[&str]) -> OwnServers {
        let name = |name: &&str| Some((*name).to_owned()).filter(|name| name != "-");
        OwnServers(names.iter().map(name).collect())
    }

    fn of(names: &[&str], headers: &[&str]) -> Finding {
        let headers = headers.iter().map(|header| match header.strip_prefix("Received:") {
            Some(value) => ("Received", value),
            None => (RESULTS_HEADER, *header),
        });
        finding(headers, &own(names), DOMAIN)
    }

    #[test]
    fn the_servers_findings_decide() {
        for (header, expected) in [
            ("mx; dmarc=pass (p=none) header.from=Example.com; dkim=fail", Finding::Verified),
            ("MX 1; dkim=pass (2048-bit key) header.d=example.com", Finding::Verified),
            ("mx; dkim=pass header.i=anna@example.com header.s=x", Finding::Verified),
            ("mx; dkim=pass header.d=evil.net; dkim=pass header.d=example.com", Finding::Verified),
            ("mx; spf=pass smtp.mailfrom=anna@example.com", Finding::Weak),
            (
                "mx; spf=pass smtp.mailfrom=example.com; dmarc=none header.from=example.com",
                Finding::Weak,
            ),
            (
                "mx; spf=pass smtp.mailfrom=eve@evil.net; dkim=pass header.d=evil.net",
                Finding::Failed,
            ),
            ("mx; spf=fail smtp.mailfrom=anna@example.com", Finding::Failed),
            ("mx; dkim=pass header.d=notexample.com", Finding::Failed),
            ("mx; dkim=pass header.d=mail.example.com", Finding::Failed),
            ("mx; dkim=pass header.d=com", Finding::Failed),
            ("mx; dkim=pass header.d=evil.net header.i=@example.com", Finding::Failed),
            ("mx; dkim=pass header.d=evil.net header.d=example.com", Finding::Failed),
            ("mx; dkim=pass header.i=example.com", Finding::Failed),
            (
                "mx; dmarc=fail header.from=example.com; dkim=pass header.d=example.com",
                Finding::Failed,
            ),
            (
                "mx; dmarc=pass header.from=evil.net; dkim=pass header.d=example.com",
                Finding::Failed,
            ),
            ("mx; dmarc=pass", Finding::Failed),
            ("mx; none", Finding::Failed),
            (
                "mx; spf=fail smtp.mailfrom=\"a; dkim=pass header.d=example.com \"@evil.net",
                Finding::Failed,
            ),
            ("mx; spf=fail (dkim=pass header.d=example.com)", Finding::Failed),
            ("mx.evil.net; dkim=pass header.d=example.com", Finding::Missing),
            ("mx 2; dkim=pass header.d=example.com", Finding::Missing),
            ("dkim=pass header.d=example.com", Finding::Missing),
        ] {
            assert_eq!(of(&["mx"], &[header]), expected, "{header}");
        }
        assert_eq!(of(&["mx"], &[]), Finding::Missing);
        let pass = "mx; dmarc=pass header.from=example.com.";
        assert_eq!(
            finding([(RESULTS_HEADER, pass)], &own(&["mx"]), "example.com."),
            Finding::Failed
        );
    }

    #[test]
    fn a_server_has_many_hosts_and_no_other_domain() {
        for (known, server, is_own) in [
            ("mx3.messagingengine.com", "mx27.messagingengine.com", true),
            ("phl-mx-03.messagingengine.com", "phl-mx-11.messagingengine.com", true),
            ("mx3.messagingengine.com", "mx3.evil.net", false),
            ("mx.a1.example", "mx.a2.example", false),
            ("mx1", "mx2", false),
            ("mx.google.com", "google.com", false),
            ("*.yahoo.com", "atlas1.free.mail.ne1.yahoo.com", true),
            ("*.yahoo.com", "evilyahoo.com", false),
            ("*.yahoo.com", ".yahoo.com", false),
            ("*yahoo.com", "evilyahoo.com", false),
        ] {
            assert_eq!(own(&[known]).contains(Some(server)), is_own, "{known} {server}");
        }
        assert!(!own(&["mx"]).contains(None) && !own(&["-"]).contains(Some("mx")));
    }

    #[test]
    fn only_the_topmost_header_of_each_own_name_counts() {
        let pass = "mx; dmarc=pass header.from=example.com";
        let of_icloud = [
            "bimi.icloud.com; bimi=none",
            "dmarc.icloud.com; dmarc=pass header.from=example.com",
            "spf.icloud.com; spf=pass smtp.mailfrom=x@example.com",
        ];
        let names = ["bimi.icloud.com", "dmarc.icloud.com", "spf.icloud.com"];

        assert_eq!(of(&["mx"], &["mx; dmarc=fail", pass]), Finding::Failed);
        assert_eq!(of(&["mx"], &["mx; none", pass]), Finding::Failed);
        assert_eq!(of(&["mx"], &["evil.net; none", pass]), Finding::Missing);
        assert_eq!(of(&["mx"], &["mx; dkim=(", pass]), Finding::Missing);
        assert_eq!(of(&["mx"], &["Received: by mx", pass, "evil; none"]), Finding::Verified);
        assert_eq!(
            of(&["-"], &["spf=fail;dmarc=pass action=none header.from=example.com"]),
            Finding::Verified
        );
        assert_eq!(of(&names, &of_icloud), Finding::Verified);
        assert_eq!(
            of(&names, &["bimi.icloud.com; bimi=none", "Received: from evil", of_icloud[1]]),
            Finding::Failed
        );
        assert_eq!(of(&names, &["dmarc.icloud.com; dmarc=fail", of_icloud[1]]), Finding::Failed);
    }
}
