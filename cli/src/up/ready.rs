//! Readiness check of a service: `GET /readyz` with a minimal HTTP client.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{sleep, timeout},
};

const POLL_INTERVAL: Duration = Duration::from_millis(10);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Waits until all services are ready.
pub async fn wait_for_all(doors: &[SocketAddr]) {
    for door in doors {
        while !matches!(timeout(ANSWER_TIMEOUT, is_ready(*door)).await, Ok(Ok(true))) {
            sleep(POLL_INTERVAL).await;
        }
    }
}

async fn is_ready(door: SocketAddr) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(door).await?;
    stream.set_nodelay(true)?;
    let request = format!("GET /readyz HTTP/1.1\r\nhost: {door}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut head = [0; 12];
    stream.read_exact(&mut head).await?;
    Ok(head.ends_with(b" 200"))
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
                let mut rest = Vec::new();
                drop(stream.read_to_end(&mut rest).await);
            }
        });

        timeout(Duration::from_secs(10), wait_for_all(&[door])).await.unwrap();

        timeout(Duration::from_secs(10), server).await.unwrap().unwrap();
    }
}
