//! Reasons for failed handshakes, in words.

use std::{error::Error, fmt, io};

use rustls::{AlertDescription, CertificateError, Error as RustlsError};

/// Reason for a failed handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TlsProblem {
    UnknownAuthority,
    Expired,
    NotYetValid,
    /// The names that the certificate has, if they are known.
    WrongName(Vec<String>),
    WrongPurpose,
    /// The other side speaks no TLS.
    PlainText,
    /// The other side refused the handshake with this alert.
    Refused(String),
    Other(String),
}

impl From<&RustlsError> for TlsProblem {
    fn from(error: &RustlsError) -> Self {
        match error {
            RustlsError::InvalidCertificate(error) => Self::of_certificate(error),
            RustlsError::AlertReceived(alert) => Self::of_alert(*alert),
            RustlsError::InvalidMessage(_) => Self::PlainText,
            error => Self::Other(error.to_string()),
        }
    }
}

impl TlsProblem {
    fn of_certificate(error: &CertificateError) -> Self {
        use CertificateError as E;

        match error {
            // The signature is bad if a trusted authority has the name of the unknown one.
            E::UnknownIssuer | E::BadSignature => Self::UnknownAuthority,
            E::Expired | E::ExpiredContext { .. } => Self::Expired,
            E::NotValidYet | E::NotValidYetContext { .. } => Self::NotYetValid,
            E::NotValidForName => Self::WrongName(Vec::new()),
            E::NotValidForNameContext { presented, .. } => Self::WrongName(presented.clone()),
            E::InvalidPurpose | E::InvalidPurposeContext { .. } => Self::WrongPurpose,
            error => Self::Other(error.to_string()),
        }
    }

    fn of_alert(alert: AlertDescription) -> Self {
        Self::Refused(match alert {
            AlertDescription::UnknownCA => {
                "it does not trust the authority of this side's certificate".to_owned()
            }
            AlertDescription::CertificateExpired => {
                "this side's certificate has expired".to_owned()
            }
            AlertDescription::CertificateRequired => "it asks for a certificate".to_owned(),
            alert => format!("alert {alert:?}"),
        })
    }

    /// Finds the reason in an error and its sources; `None` if the error is not about TLS.
    #[must_use]
    pub fn find(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(error) = error.downcast_ref::<RustlsError>() {
                return Some(error.into());
            }
            // Its `source` skips the error that it holds.
            let held = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            next = match held {
                Some(held) => Some(held),
                None => error.source(),
            };
        }
        Self::in_text(&error.to_string())
    }

    /// Finds the reason in the text of an error, for libraries that keep no more of it.
    #[must_use]
    pub fn in_text(text: &str) -> Option<Self> {
        let problems = [
            ("UnknownIssuer", Self::UnknownAuthority),
            ("invalid peer certificate: BadSignature", Self::UnknownAuthority),
            ("certificate expired", Self::Expired),
            ("certificate not valid yet", Self::NotYetValid),
            ("certificate not valid for name", Self::WrongName(Vec::new())),
            ("received corrupt message", Self::PlainText),
        ];
        if let Some((_, problem)) = problems.into_iter().find(|(part, _)| text.contains(part)) {
            return Some(problem);
        }
        let (_, alert) = text.split_once("received fatal alert: ")?;
        Some(Self::Refused(format!("alert {alert}")))
    }
}

impl fmt::Display for TlsProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownAuthority => f.write_str("its certificate is of an unknown authority"),
            Self::Expired => f.write_str("its certificate has expired"),
            Self::NotYetValid => f.write_str("its certificate is not valid yet"),
            Self::WrongName(names) if names.is_empty() => {
                f.write_str("its certificate is for another name")
            }
            Self::WrongName(names) => {
                write!(f, "its certificate is for other names: {}", names.join(", "))
            }
            Self::WrongPurpose => f.write_str("its certificate is not for this purpose"),
            Self::PlainText => f.write_str("it speaks no TLS"),
            Self::Refused(why) => write!(f, "it refuses the connection: {why}"),
            Self::Other(why) => f.write_str(why),
        }
    }
}

/// Says why a handshake failed and what to do; `None` if the error is not about TLS. `authorities`
/// is the setting or option that names the file of trusted authorities.
#[must_use]
pub fn explain(error: &(dyn Error + 'static), authorities: &str) -> Option<String> {
    TlsProblem::find(error).map(|problem| problem.with_remedy(authorities))
}

impl TlsProblem {
    /// The reason, and what to do. `authorities` is as in [`explain`].
    #[must_use]
    pub fn with_remedy(&self, authorities: &str) -> String {
        let remedy = self.remedy(authorities);
        format!("{self}; {remedy}")
    }

    fn remedy(&self, authorities: &str) -> String {
        match self {
            Self::UnknownAuthority => {
                format!("name the file with its authority's certificate by {authorities}")
            }
            Self::Expired => "renew the server's certificate".to_owned(),
            Self::NotYetValid => "compare the clocks of both machines".to_owned(),
            Self::WrongName(_) => {
                "use one of its names as the address, or give it a certificate for this one"
                    .to_owned()
            }
            Self::WrongPurpose => "give it a certificate for servers (`serverAuth`)".to_owned(),
            Self::PlainText => "turn TLS on there, or use an address without TLS".to_owned(),
            Self::Refused(_) => "give this side a certificate that it trusts".to_owned(),
            Self::Other(_) => "look at the server's log".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] io::Error);

    #[test]
    fn the_reason_is_found_within_other_errors() {
        let expired = RustlsError::InvalidCertificate(CertificateError::Expired);
        let error = Outer(io::Error::new(io::ErrorKind::InvalidData, expired));

        assert_eq!(TlsProblem::find(&error), Some(TlsProblem::Expired));
        assert_eq!(TlsProblem::find(&Outer(io::ErrorKind::NotFound.into())), None);
        let text = "IO error: invalid peer certificate: UnknownIssuer";
        assert_eq!(TlsProblem::in_text(text), Some(TlsProblem::UnknownAuthority));
        let told = explain(&error, "`tls.authorities`").unwrap();
        assert_eq!(told, "its certificate has expired; renew the server's certificate");
    }

    #[test]
    fn an_unknown_authority_is_told_with_the_setting_that_names_it() {
        let error = RustlsError::InvalidCertificate(CertificateError::UnknownIssuer);

        let told = explain(&error, "`--ca-file`").unwrap();

        assert!(told.contains("unknown authority") && told.contains("`--ca-file`"), "{told}");
    }
}
