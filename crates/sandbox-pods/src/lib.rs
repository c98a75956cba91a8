//! Sandbox in pods of a Kubernetes cluster.
//!
//! A [`PodSandbox`] runs each command in a pod that only its folder uses: one tenant, one session,
//! one view of the agent's files. The files go into the pod and out of it as tar streams, and the
//! command runs over the API server (`pods/exec`), so that no port of a pod needs to be reachable.
//! The only network of a pod is the egress proxy of its runner, with a credential for each command.
//!
//! | file | contents |
//! |---|---|
//! | `manifest.rs` | the pod: its security context, volumes and limits, from the settings only |
//! | `cluster.rs` | calls to the API server |
//! | `exec.rs` | a process in a pod, over a WebSocket |
//! | `scripts.rs` | what runs in a pod, besides the command |
//! | `network.rs` | the egress proxy of pods |
//! | `tree.rs` | a folder as a tar stream, and back |
//! | `pod.rs` | a pod in use: files in, command, files out |
//! | `sandbox.rs` | which pod a command gets; renewal and end of pods |
//! | `sweep.rs` | the warm pool; pods that nobody uses any more |
//!
//! ## What can go wrong
//!
//! What comes out of a pod is hostile: names, links, sizes and numbers of files are checked before
//! anything is written, and nothing is written through a link. A pod of whose state we are not sure
//! is deleted, never used again. A pod whose runner is gone is deleted when its lease has expired.

mod cluster;
mod config;
mod error;
mod exec;
mod manifest;
mod network;
mod pod;
mod sandbox;
mod scripts;
mod sweep;
mod tree;

pub use config::{Config, Resources};
pub use sandbox::PodSandbox;
pub use sweep::PodSweep;
