//! Texts for people whose turn failed: what happened, and whether to wait, to shorten the conversation,
//! or to ask the person who runs the assistant. They have nothing of the provider's own words.

use std::borrow::Cow;

use holdfast_llm::Error;
use holdfast_types::{Fault as _, Kind};

use crate::turn::reply::{
    language::Language,
    replies::{Failure, TaskLimit},
};

/// Cause of a failure, and what to do.
pub(super) fn describe<'f>(failure: &'f Failure<'_>, language: Language) -> Cow<'f, str> {
    match (failure, language) {
        (Failure::Model(error), _) => model_text(error, language),
        (Failure::NoModel(model), _) => no_model_text(*model, language).into(),
        (Failure::BudgetSpent(why), _) => Cow::Borrowed(*why),
        (other, Language::English) => english(other),
        (other, Language::Chinese) => chinese(other),
    }
}

fn english<'f>(failure: &'f Failure<'_>) -> Cow<'f, str> {
    let text = match failure {
        // These have texts of their own.
        Failure::Model(_) | Failure::NoModel(_) | Failure::BudgetSpent(_) => "",
        Failure::NoAgent => {
            "this conversation's assistant was removed. Whoever set it up should look."
        }
        Failure::AnswerFormat(why) => {
            let text = format!(
                "the model's answer has not the form that was asked for, even after a correction: \
                 {why}. Please ask another way, or use another model."
            );
            return text.into();
        }
        Failure::ToolNameTaken(name) => {
            let text =
                format!("the agent has a tool named `{name}` of its own. Give yours another name.");
            return text.into();
        }
        Failure::NoBehavior(name) => {
            let text = format!(
                "this assistant has no behaviour named `{name}`. Whoever set it up should look at its \
                 behaviours."
            );
            return text.into();
        }
        Failure::ClientTools => {
            "this assistant works by behaviours, which use no tools of a client. Send the request \
             without tools."
        }
        Failure::StepLimit => {
            "the work did not come to an end within the steps that it may take. Please ask for less at \
             once, or tell me how to go on."
        }
        Failure::TurnTimedOut => "it took too long. Please try again, or ask for less at once.",
        Failure::NoTask => {
            "this subagent's task is deleted, and its limits with it: the conversation that asked for it \
             was deleted, or the task ended long ago."
        }
        Failure::TaskLimit(TaskLimit::Steps) => "the task took more steps than it may.",
        Failure::TaskLimit(TaskLimit::Tokens) => "the task used more tokens than it may.",
        Failure::TaskLimit(TaskLimit::Time) => "the task took longer than it may.",
        Failure::ToolLoop => {
            "the model kept asking for tools instead of answering. Please ask another way."
        }
    };
    text.into()
}

fn chinese<'f>(failure: &'f Failure<'_>) -> Cow<'f, str> {
    let text = match failure {
        // These have texts of their own.
        Failure::Model(_) | Failure::NoModel(_) | Failure::BudgetSpent(_) => "",
        Failure::NoAgent => "此对话的助手已被删除。请联系设置该助手的人。",
        Failure::AnswerFormat(why) => {
            let text = format!(
                "即使经过一次更正，模型的回答仍不符合所要求的格式：{why}。请换一种方式提问，或使用其他模型。"
            );
            return text.into();
        }
        Failure::ToolNameTaken(name) => {
            return format!("助手自己已有名为 `{name}` 的工具。请为您的工具换一个名称。").into();
        }
        Failure::NoBehavior(name) => {
            return format!("此助手没有名为 `{name}` 的行为。请联系设置该助手的人检查其行为。")
                .into();
        }
        Failure::ClientTools => "此助手按行为工作，不使用客户端的工具。请发送不含工具的请求。",
        Failure::StepLimit => {
            "任务未能在允许的步骤数内完成。请减少单次要求的内容，或告诉我如何继续。"
        }
        Failure::TurnTimedOut => "处理时间过长。请重试，或减少单次要求的内容。",
        Failure::NoTask => "此子代理的任务及其限制已被删除：发起它的对话已被删除，或任务早已结束。",
        Failure::TaskLimit(TaskLimit::Steps) => "任务超出了允许的步骤数。",
        Failure::TaskLimit(TaskLimit::Tokens) => "任务超出了允许的令牌数。",
        Failure::TaskLimit(TaskLimit::Time) => "任务超出了允许的时间。",
        Failure::ToolLoop => "模型一直请求调用工具而没有回答。请换一种方式提问。",
    };
    text.into()
}

/// What to do about a failed model request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ModelTrouble {
    Key,
    Credit,
    RateLimit,
    TooLong,
    Refused,
    Filtered,
    AllKeys,
    AllBusy,
    AllUnavailable,
    Overloaded,
    Unavailable,
    Timeout,
    Unreadable,
    Empty,
    Cancelled,
}

fn model_text(error: &Error, language: Language) -> Cow<'static, str> {
    let trouble = match error {
        Error::NoModel(model) => return no_model_text(Some(model), language).into(),
        Error::UnsupportedOption(name) => {
            return match language {
                Language::English => error.to_string(),
                Language::Chinese => {
                    format!("模型提供商不支持 `{name}`：请去掉该选项，或使用其他模型。")
                }
            }
            .into();
        }
        Error::NoProvider { .. } | Error::Setup(_) | Error::Address(_) => {
            return no_model_text(None, language).into();
        }
        Error::Auth | Error::NotPermitted => ModelTrouble::Key,
        Error::Quota => ModelTrouble::Credit,
        Error::RateLimited { .. } => ModelTrouble::RateLimit,
        Error::ContextOverflow => ModelTrouble::TooLong,
        Error::BadRequest { .. } => ModelTrouble::Refused,
        Error::Filtered => ModelTrouble::Filtered,
        Error::AllFailed { .. } => match error.kind() {
            Kind::Forbidden => ModelTrouble::AllKeys,
            Kind::Exhausted => ModelTrouble::AllBusy,
            Kind::Unavailable
            | Kind::Invalid
            | Kind::NotFound
            | Kind::Conflict
            | Kind::Unauthenticated
            | Kind::Internal => ModelTrouble::AllUnavailable,
        },
        Error::Unavailable { status: Some(503 | 529), .. } => ModelTrouble::Overloaded,
        Error::Unavailable { .. } | Error::Interrupted => ModelTrouble::Unavailable,
        Error::Timeout => ModelTrouble::Timeout,
        Error::Malformed(_) | Error::TooLong { .. } => ModelTrouble::Unreadable,
        Error::Empty => ModelTrouble::Empty,
        Error::Cancelled => ModelTrouble::Cancelled,
    };
    match language {
        Language::English => trouble.english(),
        Language::Chinese => trouble.chinese(),
    }
    .into()
}

impl ModelTrouble {
    const fn english(self) -> &'static str {
        match self {
            Self::Key => {
                "the model's provider refused the key. Whoever set up this assistant should check the \
                 provider's API key."
            }
            Self::Credit => {
                "the account with the model's provider is out of credit. Whoever set up this assistant \
                 should top it up."
            }
            Self::RateLimit => {
                "the model's provider takes no more requests for now. Please wait a few minutes, and \
                 try again."
            }
            Self::TooLong => {
                "this conversation is longer than the model can read. Please shorten it with \
                 `/compact`, begin a new one with `/new`, or send less at once."
            }
            Self::Refused => {
                "the model's provider refused the request. Trying again will not help: please begin a \
                 new conversation with `/new`, or ask whoever set up this assistant, who can read why."
            }
            Self::Filtered => {
                "the model's provider kept the answer back: its content filter objects. Please ask \
                 another way."
            }
            Self::AllKeys => {
                "the providers of all its models refused their keys. Whoever set up this assistant \
                 should check them."
            }
            Self::AllBusy => {
                "the providers of all its models take no more requests for now, or their accounts are \
                 out of credit. Please wait a few minutes, and try again; whoever set up this assistant \
                 should look."
            }
            Self::AllUnavailable => {
                "the model is not available right now, and neither is any that stands in for it. Please \
                 wait a minute, and try again."
            }
            Self::Overloaded => {
                "the model is not available right now: its provider is overloaded. Please wait a \
                 minute, and try again."
            }
            Self::Unavailable => {
                "the model is not available right now. Please wait a minute, and try again."
            }
            Self::Timeout => {
                "the model did not answer in time. Please try again, or ask for less at once."
            }
            Self::Unreadable => {
                "the model's answer could not be read. Please try again, or ask another way."
            }
            Self::Empty => "the model's answer was empty. Please try again, or ask another way.",
            Self::Cancelled => "the request was cancelled.",
        }
    }

    const fn chinese(self) -> &'static str {
        match self {
            Self::Key => "模型提供商拒绝了密钥。请联系设置该助手的人检查 API 密钥。",
            Self::Credit => "模型提供商账户的额度已用完。请联系设置该助手的人充值。",
            Self::RateLimit => "模型提供商暂时不再接受请求。请等待几分钟后重试。",
            Self::TooLong => {
                "此对话的长度超出了模型可读取的范围。请用 `/compact` 压缩对话，用 `/new` 开始新对话，\
                 或减少单次发送的内容。"
            }
            Self::Refused => {
                "模型提供商拒绝了请求。重试没有用：请用 `/new` 开始新对话，或联系设置该助手的人，\
                 他们可以查看原因。"
            }
            Self::Filtered => "模型提供商的内容过滤器拦截了回答。请换一种方式提问。",
            Self::AllKeys => "所有模型的提供商都拒绝了密钥。请联系设置该助手的人检查密钥。",
            Self::AllBusy => {
                "所有模型的提供商暂时都不再接受请求，或账户额度已用完。请等待几分钟后重试；\
                 也请联系设置该助手的人。"
            }
            Self::AllUnavailable => "模型及其备用模型目前都不可用。请稍等片刻后重试。",
            Self::Overloaded => "模型目前不可用：提供商过载。请稍等片刻后重试。",
            Self::Unavailable => "模型目前不可用。请稍等片刻后重试。",
            Self::Timeout => "模型没有及时回答。请重试，或减少单次要求的内容。",
            Self::Unreadable => "无法读取模型的回答。请重试，或换一种方式提问。",
            Self::Empty => "模型的回答是空的。请重试，或换一种方式提问。",
            Self::Cancelled => "请求已取消。",
        }
    }
}

fn no_model_text(model: Option<&str>, language: Language) -> String {
    let named = model.map(|model| format!(" `{}`", model.replace('`', "'"))).unwrap_or_default();
    match language {
        Language::English => format!(
            "the model{named} is not set up rightly. Whoever set up this assistant should check its \
             model and the model's provider."
        ),
        Language::Chinese => {
            format!("模型{named} 的设置不正确。请联系设置该助手的人检查模型及其提供商。")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(error: &Error, language: Language) -> String {
        describe(&Failure::Model(error), language).into_owned()
    }

    #[test]
    fn a_text_says_to_wait_to_shorten_or_whom_to_ask() {
        for (error, english, chinese) in [
            (Error::RateLimited { retry_after: None }, "wait", "等待"),
            (Error::Unavailable { status: Some(529), source: None }, "wait", "稍等"),
            (Error::ContextOverflow, "`/compact`", "`/compact`"),
            (Error::Auth, "Whoever set up", "联系设置"),
            (Error::Quota, "Whoever set up", "联系设置"),
            (Error::NoModel("p:m".into()), "Whoever set up", "联系设置"),
            (Error::Setup("x"), "Whoever set up", "联系设置"),
            (
                Error::BadRequest { status: 418, code: "teapot".into() },
                "whoever set up",
                "联系设置",
            ),
        ] {
            let (in_english, in_chinese) =
                (text(&error, Language::English), text(&error, Language::Chinese));
            assert!(in_english.contains(english), "{in_english}");
            assert!(in_chinese.contains(chinese), "{in_chinese}");
            for told in [in_english, in_chinese] {
                assert!(!told.contains("418") && !told.contains("teapot"), "{told}");
            }
        }
    }
}
