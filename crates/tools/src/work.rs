//! Tools for an agent's own work: its todo list, its wallet, and what it says of itself.

mod self_file;
mod todo;
mod wallet;

pub use self_file::{
    SelfChange, SelfLog, SelfTool,
    proposals::{NewSelfProposal, SelfProposals},
};
pub use todo::{TodoRequest, TodoTool, Todos};
pub use wallet::{WalletPayment, WalletTool, Wallets};
