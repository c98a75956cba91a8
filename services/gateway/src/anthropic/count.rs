//! Estimate of a request's tokens.
//!
//! It counts what the client sends, by the estimate of budgets and summaries (`holdfast_agent::tokens`):
//! the agent's own instructions, tools and memories come on top, and the model's own tokenizer counts
//! otherwise. Pictures are not counted.

use holdfast_agent::tokens::{CjkAware, Tokenizer as _};

use crate::openai::AnswerRequest;

/// Estimates the tokens of messages and tools.
pub fn input_tokens(ask: &AnswerRequest) -> usize {
    let messages = ask.turns.iter().map(|turn| {
        let calls =
            turn.calls.iter().map(|call| CjkAware.count(&call.tool) + CjkAware.count(&call.input));
        let results = turn.results.iter().map(|result| CjkAware.count(&result.output));
        let text = Some(&turn.text).filter(|text| !text.is_empty());
        text.map_or(0, |text| CjkAware.count(text)) + calls.chain(results).sum::<usize>()
    });
    let tools = ask.options.iter().flat_map(|options| &options.tools).map(|tool| {
        let parameters = tool.parameters.to_string();
        [&tool.name, &tool.description, &parameters]
            .map(|text| CjkAware.count(text))
            .iter()
            .sum::<usize>()
    });
    messages.chain(tools).sum()
}
