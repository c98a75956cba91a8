//! The page, its program, and the script for sites. They are the same for all accounts.

use axum::{
    http::{HeaderValue, header},
    response::{IntoResponse as _, Response},
};

const PAGE: &str = include_str!("assets/page.html");
const PROGRAM: &str = include_str!("assets/page.js");
const STYLE: &str = include_str!("assets/page.css");
const SCRIPT: &str = include_str!("assets/site.js");

/// Returns the file at a path below the account with this id, or nothing. `origins` may show the page in a frame.
pub fn asset(path: &str, account: &str, origins: &[String]) -> Option<Response> {
    let (media_type, content) = match path {
        "" => ("text/html; charset=utf-8", PAGE),
        "page.js" => ("text/javascript; charset=utf-8", PROGRAM),
        "page.css" => ("text/css; charset=utf-8", STYLE),
        "js" => ("text/javascript; charset=utf-8", SCRIPT),
        _ => return None,
    };
    let policy = format!(
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'self' {}",
        origins.join(" ")
    );
    let policy = HeaderValue::from_str(policy.trim()).ok()?;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(media_type)),
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    // The page's files are beside it; whether its own address ends with a slash must not matter.
    Some((headers, content.replace("{account}", account)).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_runs_its_own_program_only_and_in_allowed_frames_only() {
        let page = asset("", "acc_1", &["https://example.com".to_owned()]).unwrap();
        let policy = page.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap();

        assert!(policy.contains("default-src 'none'; script-src 'self'"), "{policy}");
        assert!(policy.ends_with("frame-ancestors 'self' https://example.com"), "{policy}");
        assert!(asset("../secrets", "acc_1", &[]).is_none());
        for danger in ["innerHTML", "insertAdjacentHTML", "document.write", "eval("] {
            assert!(!PROGRAM.contains(danger) && !SCRIPT.contains(danger), "{danger}");
        }
    }
}
