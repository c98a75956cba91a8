//! Notes under answers that ended early. They are sent to channels with the answer, and are not part of
//! it: the journal and APIs have the reason instead.

use holdfast_types::StopReason;

use crate::turn::reply::language::Language;

/// Note for people about why an answer ended early; `None` if it is whole.
pub(crate) const fn end_note(stop: StopReason, language: Language) -> Option<&'static str> {
    let (english, chinese) = match stop {
        StopReason::End | StopReason::ToolUse => return None,
        StopReason::MaxTokens => (
            "[The answer was cut off: it reached the limit of its length. Write “continue” for the rest.]",
            "[回答已被截断：达到了长度上限。发送“继续”可获取其余部分。]",
        ),
        StopReason::ContextWindow => (
            "[The answer was cut off: the conversation fills all that the model can read. Shorten it with \
             /compact, then write “continue”.]",
            "[回答已被截断：对话已占满模型可读取的范围。请先用 /compact 压缩对话，再发送“继续”。]",
        ),
        StopReason::Filtered => (
            "[The answer was cut off by the content filter of the model's provider. Please ask another way.]",
            "[回答被模型提供商的内容过滤器截断。请换一种方式提问。]",
        ),
        StopReason::Refusal => (
            "[The model refused to go on with its answer. Please ask another way.]",
            "[模型拒绝继续回答。请换一种方式提问。]",
        ),
        StopReason::PauseTurn => (
            "[The model's provider paused the answer. Write “continue” for the rest.]",
            "[模型提供商暂停了回答。发送“继续”可获取其余部分。]",
        ),
    };
    Some(match language {
        Language::English => english,
        Language::Chinese => chinese,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_early_end_has_a_note_and_a_reason_and_a_whole_answer_has_neither() {
        for stop in StopReason::ALL {
            for language in [Language::English, Language::Chinese] {
                assert_eq!(
                    end_note(stop, language).is_some(),
                    stop.early_end().is_some(),
                    "{stop:?}"
                );
            }
        }
    }
}
