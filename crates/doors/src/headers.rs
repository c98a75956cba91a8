//! Headers that tell browsers how they may use an answer, where its handler does not say.
//!
//! An answer of an API is data: a browser that is led to one must not show it as a page, run or frame it,
//! or keep it. gRPC is left as it is; gRPC-web is for browsers.

use axum::{
    http::{
        HeaderName, HeaderValue,
        header::{
            CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
            X_CONTENT_TYPE_OPTIONS,
        },
    },
    response::Response,
};

const DEFAULTS: [(HeaderName, &str); 4] = [
    (CACHE_CONTROL, "no-store"),
    (CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    (REFERRER_POLICY, "no-referrer"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
];

/// Adds the headers that an answer does not have.
pub(crate) fn add_missing(response: &mut Response) {
    let headers = response.headers_mut();
    let content_type = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let is_grpc = |kind: &[u8]| {
        kind.starts_with(b"application/grpc") && !kind.starts_with(b"application/grpc-web")
    };
    if content_type.is_some_and(is_grpc) {
        return;
    }
    for (name, value) in DEFAULTS {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use axum::{Router, response::IntoResponse as _, routing::get};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::{TcpListener, TcpStream},
    };
    use tokio_util::sync::CancellationToken;

    use super::*;

    async fn ask(path: &str) -> std::io::Result<String> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let router = Router::new()
            .route("/plain", get(async || "ok"))
            .route("/own", get(async || ([(CACHE_CONTROL, "no-cache")], "ok").into_response()))
            .route("/web", get(async || ([(CONTENT_TYPE, "application/grpc-web")], "ok")))
            .route("/grpc", get(async || ([(CONTENT_TYPE, "application/grpc")], "ok")));
        tokio::spawn(crate::serve(listener, router, None, CancellationToken::new()));
        let mut socket = TcpStream::connect(address).await?;
        socket.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await?;
        Ok(answer.to_ascii_lowercase())
    }

    #[tokio::test]
    async fn a_browser_neither_shows_frames_nor_keeps_an_answer_that_does_not_say_so() {
        for path in ["/plain", "/none", "/web"] {
            let answer = ask(path).await.unwrap();
            for (name, value) in DEFAULTS {
                assert!(answer.contains(&format!("\r\n{name}: {value}\r\n")), "{path}: {answer}");
            }
        }
        let own = ask("/own").await.unwrap();
        assert!(own.contains("cache-control: no-cache") && !own.contains("no-store"), "{own}");
        let grpc = ask("/grpc").await.unwrap();
        assert!(!grpc.contains("nosniff") && !grpc.contains("no-store"), "{grpc}");
    }
}
