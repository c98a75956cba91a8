//! Readiness check of a service: `GET /readyz` with a minimal HTTP client.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{sleep, timeout},
};

const POLL_INTERVAL: Duration = Duration::from_millis(10);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
const MAX_ANSWER_BYTES: u64 = 16 * 1024;

/// Waits until all services are ready.
pub async fn wait_for_all(doors: &[SocketAddr]) {
    for door in doors {
        while !matches!(timeout(ANSWER_TIMEOUT, is_ready(*door)).await, Ok(Ok(true))) {
            sleep(POLL_INTERVAL).await;
        }
    }
}

/// Returns why a service is not ready; `None` if it is.
pub async fn failure(door: SocketAddr) -> Option<String> {
    match timeout(ANSWER_TIMEOUT, answer(door)).await {
        Ok(Ok(text)) if is_ok(&text) => None,
        Ok(Ok(text)) => Some(text.lines().last().unwrap_or_default().to_owned()),
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some(format!("no answer within {ANSWER_TIMEOUT:?}")),
    }
}

async fn is_ready(door: SocketAddr) -> std::io::Result<bool> {
    Ok(is_ok(&answer(door).await?))
}

fn is_ok(answer: &str) -> bool {
    answer.split(' ').nth(1) == Some("200")
}

/// Head and body of the answer.
async fn answer(door: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(door).await?;
    stream.set_nodelay(true)?;
    let request = format!("GET /readyz HTTP/1.1\r\nhost: {door}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut text = Vec::new();
    stream.take(MAX_ANSWER_BYTES).read_to_end(&mut text).await?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn it_waits_for_200_and_takes_no_other_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let door = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            for answer in ["HTTP/1.1 503 Service Unavailable", "HTTP/1.1 200 OK"] {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.write_all(format!("{answer}\r\n\r\n").as_bytes()).await.unwrap();
                stream.shutdown().await.unwrap();
                let mut rest = Vec::new();
                drop(stream.read_to_end(&mut rest).await);
            }
        });

        timeout(Duration::from_secs(10), wait_for_all(&[door])).await.unwrap();

        timeout(Duration::from_secs(10), server).await.unwrap().unwrap();
    }
}
