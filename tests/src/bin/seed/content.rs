//! Texts of people and agents in English and Chinese, drawn at random.

use rand::{RngExt as _, rngs::StdRng};

/// What a conversation is about. `{person}`, `{city}`, `{product}` and `{number}` are drawn.
#[derive(Debug)]
pub struct Topic {
    pub title: &'static str,
    questions: &'static [&'static str],
    answers: &'static [&'static str],
    further: &'static [&'static str],
}

const PEOPLE: &[&str] = &[
    "Anna Lindqvist",
    "Marco Bianchi",
    "Priya Raman",
    "Tom Okafor",
    "Sofia Marques",
    "Jonas Weber",
    "Aisha Karim",
    "Léa Dubois",
    "王芳",
    "李伟",
    "张敏",
    "刘洋",
    "陈静",
    "赵磊",
    "佐藤 健",
    "Olu Adeyemi",
];
const CITIES: &[&str] = &["Lisbon", "Oslo", "Berlin", "Nairobi", "Toronto", "上海", "深圳", "杭州"];
const PRODUCTS: &[&str] = &[
    "the billing service",
    "the mobile app",
    "the data pipeline",
    "订单系统",
    "支付网关",
    "the newsletter",
];

const ENGLISH: &[Topic] = &[
    Topic {
        title: "Trip to {city}",
        questions: &[
            "I have to be in {city} by nine on Thursday. Which train should I take?",
            "How much is a hotel near the station in {city} for {number} nights?",
            "Can you move everything one day later? {person} cannot come on Thursday.",
        ],
        answers: &[
            "The **07:12** arrives at 08:41 and has no change. The 07:42 would be late if it is more than ten minutes behind.",
            "Three hotels are within a short walk:\n\n| hotel | night | breakfast |\n|---|---|---|\n| Central | €{number} | yes |\n| Riverside | €118 | no |\n| Hotel do Parque | €94 | yes |\n\nThe third has the best reviews for its price.",
            "Done: the seat and the room are one day later. The difference is €{number}.",
        ],
        further: &[
            "I set a reminder for the evening before.",
            "{person} has the same plan, so you could share a taxi.",
        ],
    },
    Topic {
        title: "Errors in {product}",
        questions: &[
            "{product} answers with 502 since this morning. What changed?",
            "Write me a query that shows the slowest requests of the last hour.",
            "Is it safe to roll back? {person} says the migration has run already.",
        ],
        answers: &[
            "The deployment at 08:{number} changed the pool size. Connections to the database run out after about {number} minutes:\n\n```\nERROR: remaining connection slots are reserved\n```\n\nRaise `max_connections`, or set the pool back to 20.",
            "```sql\nselect route, count(*), percentile_cont(0.99) within group (order by ms) as p99\nfrom requests\nwhere at > now() - interval '1 hour'\ngroup by route order by p99 desc limit {number};\n```\n\nIt reads one partition only, so it is cheap.",
            "Yes. The migration only *adds* a column with a default, and the former version does not read it.\n\n1. Roll back `api`.\n2. Wait until all pods are ready.\n3. Leave the column as it is.",
        ],
        further: &[
            "The graph of the pool shows the same.",
            "I opened a ticket for {person} with the details.",
        ],
    },
    Topic {
        title: "Contract with {person}",
        questions: &[
            "Summarise the contract in five points.",
            "Which clauses are unusual?",
            "Draft an answer to {person} that asks for {number} more days.",
        ],
        answers: &[
            "- It runs for {number} months.\n- Either side may end it with 30 days' notice.\n- Payment is due 14 days after the invoice.\n- Work results belong to the client once they are paid.\n- The law of {city} applies.",
            "Clause 7.2 makes you liable **without a limit** for delays. I would ask for a cap of one month's fee.",
            "> Dear {person},\n>\n> thank you for the draft. Could we have {number} more days to review the annexes?\n>\n> Kind regards",
        ],
        further: &[
            "The annex refers to a document that is not attached.",
            "I compared it with last year's version: only the fees differ.",
        ],
    },
    Topic {
        title: "Report for week {number}",
        questions: &[
            "Make the weekly report from the numbers in the folder.",
            "Why did sign-ups fall in {city}?",
            "Put the chart's numbers into a table.",
        ],
        answers: &[
            "## Week {number}\n\nRevenue is up by 4 %, sign-ups are down by {number}. The largest change is in {city}.\n\n- New customers: 1{number}\n- Churn: 2.1 %\n- Open tickets: {number}",
            "The campaign there ended on Monday; the same happened in spring. Without it the number is as in the week before.",
            "| day | visits | sign-ups |\n|---|---:|---:|\n| Mon | 12,4{number} | 181 |\n| Tue | 11,902 | 164 |\n| Wed | 13,377 | 201 |\n| Thu | 12,918 | 176 |\n| Fri | 9,450 | 122 |",
        ],
        further: &["The numbers of Sunday are not final.", "{person} wanted the table by noon."],
    },
    Topic {
        title: "Parser in Rust",
        questions: &[
            "Write a function that parses durations like `1h30m`.",
            "Does it handle overflow?",
            "Add a test for {number} minutes.",
        ],
        answers: &[
            "```rust\nfn parse(text: &str) -> Option<Duration> {\n    let mut total = Duration::ZERO;\n    for (count, unit) in parts(text)? {\n        total = total.checked_add(unit.checked_mul(count)?)?;\n    }\n    Some(total)\n}\n```",
            "Yes: `checked_mul` and `checked_add` return `None`, and so does the function.",
            "```rust\n#[test]\nfn minutes_are_parsed() {\n    assert_eq!(parse(\"{number}m\"), Some(Duration::from_secs({number} * 60)));\n}\n```",
        ],
        further: &["Clippy has no complaints.", "I would keep the list of units in one place."],
    },
];

const CHINESE: &[Topic] = &[
    Topic {
        title: "{city}出差安排",
        questions: &[
            "周四上午九点前要到{city}，坐哪一班高铁？",
            "车站附近住 {number} 晚大概多少钱？",
            "{person}周四来不了，都往后推一天可以吗？",
        ],
        answers: &[
            "推荐 **07:12** 出发的那一班，08:41 到达，不用换乘。07:42 那班如果晚点十分钟就来不及了。",
            "附近有三家合适的酒店：\n\n| 酒店 | 每晚 | 早餐 |\n|---|---|---|\n| 中心酒店 | ¥{number}9 | 有 |\n| 江畔酒店 | ¥418 | 无 |\n| 园景宾馆 | ¥366 | 有 |\n\n第三家的性价比最高。",
            "已经全部改到第二天，需要补差价 ¥{number}。",
        ],
        further: &["出发前一晚我会提醒您。", "{person}的行程相同，可以一起打车。"],
    },
    Topic {
        title: "{product}故障排查",
        questions: &[
            "{product}从今天早上开始报 502，是什么变了？",
            "写一条查询，找出最近一小时最慢的请求。",
            "现在回滚安全吗？{person}说迁移已经执行了。",
        ],
        answers: &[
            "08:{number} 的发布改了连接池大小，大约 {number} 分钟后数据库连接用尽：\n\n```\nERROR: remaining connection slots are reserved\n```\n\n把 `max_connections` 调大，或者把连接池改回 20。",
            "```sql\nselect route, count(*) from requests\nwhere at > now() - interval '1 hour'\ngroup by route order by 2 desc limit {number};\n```\n\n只会读一个分区，开销很小。",
            "安全。迁移只*增加*了一个带默认值的列，旧版本不会读取它。\n\n1. 回滚 `api`。\n2. 等待所有副本就绪。\n3. 保留该列。",
        ],
        further: &["监控图上的连接数也是同样的趋势。", "我已经为{person}建了工单。"],
    },
    Topic {
        title: "第 {number} 周周报",
        questions: &[
            "根据文件夹里的数据写本周周报。",
            "{city}的注册数为什么下降了？",
            "把图里的数字整理成表格。",
        ],
        answers: &[
            "## 第 {number} 周\n\n收入增长 4%，注册数减少 {number}，变化最大的是{city}。\n\n- 新客户：1{number}\n- 流失率：2.1%\n- 未关闭工单：{number}",
            "那里的推广周一结束了，春天也出现过同样的情况。去掉推广后与上一周持平。",
            "| 日期 | 访问 | 注册 |\n|---|---:|---:|\n| 周一 | 12,4{number} | 181 |\n| 周二 | 11,902 | 164 |\n| 周三 | 13,377 | 201 |",
        ],
        further: &["周日的数据还不是最终值。", "{person}希望中午之前拿到表格。"],
    },
];

/// Descriptions of agents: what they are called, and what they are for.
pub const AGENTS: &[(&str, &str)] = &[
    ("assistant", "Answers questions, plans trips, and keeps the calendar."),
    ("coder", "Reads and writes code, runs tests, and explains failures."),
    ("analyst", "Turns numbers into weekly reports and charts."),
    ("support", "Answers customers on the web site and hands difficult cases over."),
    ("writer", "Drafts letters, minutes and articles in a plain style."),
    ("operations", "Watches services, reads logs, and says what changed."),
    ("legal", "Reads contracts and points out unusual clauses."),
    ("caiwu", "财务助理：核对发票，整理报销。"),
    ("kefu", "客服助理：回答客户的问题，必要时转人工。"),
    ("fanyi", "翻译助理：中英互译，保留格式与术语。"),
];

pub const FAILURES: &[&str] = &[
    "the model's provider answered 529 five times: it is overloaded",
    "the budget of today is used up: 2,000,000 tokens",
    "the answer did not end within 10m",
    "the credential `default` of the provider `scripted` was refused",
];

/// Tools with an input and what they return.
pub const CALLS: &[(&str, &str, &str)] = &[
    (
        "web_fetch",
        r#"{"url":"https://example.com/timetable"}"#,
        "Departures\n07:12 platform 4\n07:42 platform 2\n08:12 platform 4",
    ),
    (
        "exec",
        r#"{"command":"cargo test --quiet","folder":"app"}"#,
        "running 42 tests\n..........................................\ntest result: ok. 42 passed; 0 failed",
    ),
    (
        "read",
        r#"{"path":"notes/week.md"}"#,
        "# Week\n\n- Monday: call the bank\n- Tuesday: 提交周报\n- Friday: release",
    ),
    ("memory_search", r#"{"query":"seat preference"}"#, "[1] prefers a window seat (2026-10-02)"),
    (
        "write",
        r#"{"path":"reports/week.md","content":"Revenue is up by 4 %."}"#,
        "wrote 21 bytes to reports/week.md",
    ),
    (
        "exec",
        r#"{"command":"psql -c 'select count(*) from orders'","network":true}"#,
        " count\n-------\n 18342\n(1 row)",
    ),
];

pub fn pick<'a, T>(random: &mut StdRng, of: &'a [T]) -> &'a T {
    &of[random.random_range(0..of.len())]
}

pub fn topic(random: &mut StdRng) -> &'static Topic {
    let of = if random.random_bool(0.4) { CHINESE } else { ENGLISH };
    pick(random, of)
}

pub fn person(random: &mut StdRng) -> &'static str {
    pick::<&str>(random, PEOPLE)
}

impl Topic {
    pub fn title(&self, random: &mut StdRng) -> String {
        fill(random, self.title)
    }

    /// The message of a turn and its answer.
    pub fn turn(&self, random: &mut StdRng, number: usize) -> (String, String) {
        let nth = number % self.questions.len();
        let question = fill(random, self.questions[nth]);
        let mut answer = fill(random, self.answers[nth]);
        if random.random_bool(0.5) {
            let further = pick(random, self.further);
            answer = format!("{answer}\n\n{}", fill(random, further));
        }
        (question, answer)
    }
}

fn fill(random: &mut StdRng, text: &str) -> String {
    let mut text = text.replace("{number}", &random.random_range(10..60).to_string());
    for (name, of) in [("{person}", PEOPLE), ("{city}", CITIES), ("{product}", PRODUCTS)] {
        text = text.replace(name, pick::<&str>(random, of));
    }
    text
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    #[test]
    fn a_number_decides_every_text() {
        let texts = |number| {
            let mut random = StdRng::seed_from_u64(number);
            (0..20).map(|turn| topic(&mut random).turn(&mut random, turn)).collect::<Vec<_>>()
        };

        assert_eq!(texts(1), texts(1));
        assert_ne!(texts(1), texts(2));
        assert!(
            texts(1)
                .iter()
                .all(|(question, answer)| !question.contains('{') && !answer.contains("{person}"))
        );
    }
}
