//! gRPC calls by name with encoded messages; the table defines their contents.

use bytes::{Buf as _, BufMut as _};
use futures::StreamExt as _;
use http::uri::PathAndQuery;
use tonic::{
    Status,
    client::Grpc,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

use crate::world::{Tenant, World};

/// Calls a method and returns all response messages.
pub async fn call(
    world: &World,
    who: &Tenant,
    method: &str,
    message: Vec<u8>,
) -> Result<Vec<Vec<u8>>, Status> {
    let mut grpc = Grpc::new(world.shared_channel().await.expect("the gateway is there"));
    grpc.ready().await.expect("the gateway is there");
    let path = format!("/holdfast.gateway.v1.{method}");
    let path = PathAndQuery::try_from(path).expect("a method's name is plain");
    // On the wire a unary response is a stream of one message.
    let answers = grpc.server_streaming(who.request(message), path, Plain).await?;
    let mut answers = answers.into_inner();
    let mut all = Vec::new();
    while let Some(answer) = answers.next().await {
        all.push(answer?);
        // This one goes on until the caller leaves.
        if method == "Runs/WatchActivity" {
            break;
        }
    }
    Ok(all)
}

#[derive(Clone, Copy)]
pub struct Plain;

impl Codec for Plain {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Plain {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, message: Vec<u8>, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put_slice(&message);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining()).to_vec()))
    }
}
