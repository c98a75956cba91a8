//! What work leaves behind: worklogs, tasks, the ledger, and runs of jobs.

use sqlx::PgConnection;
use uuid::Uuid;

/// Records of each session's worklog, and steps of its tree of tasks.
const RECORDS: i32 = 24;
const STEPS: i32 = 8;
const RUNS_OF_JOB: i32 = 20;

/// Writes the records of sessions (id, key, agent) that have todos, and runs of jobs.
pub async fn write(
    database: &mut PgConnection,
    tenant: Uuid,
    sessions: &[(Uuid, String, Uuid)],
    jobs: &[Uuid],
) -> anyhow::Result<()> {
    let ids: Vec<Uuid> = sessions.iter().map(|(id, ..)| *id).collect();
    let agents: Vec<Uuid> = sessions.iter().map(|(.., agent)| *agent).collect();
    for (sql, most) in [(WORKLOG, RECORDS), (TASKS, STEPS), (LEDGER, STEPS)] {
        let query = sqlx::query(sql).bind(tenant).bind(&ids).bind(&agents).bind(most);
        query.execute(&mut *database).await?;
    }
    let query = sqlx::query(JOB_RUNS).bind(tenant).bind(jobs).bind(RUNS_OF_JOB);
    query.execute(database).await?;
    Ok(())
}

const WORKLOG: &str = "
    with of as (select * from unnest($2::uuid[], $3::uuid[]) as s (session, agent)),
    head as (
        update work.lists l set log_seq = l.log_seq + $4 from of
        where l.tenant_id = $1 and l.list_id = of.session
        returning l.list_id, l.log_seq - $4 as before)
    insert into work.worklog
        (tenant_id, list_id, seq, record_id, at, type, scope, agent_id, session_id, behavior, step, todo,
         impact_level, domain, importance, status, payload, error, digest, detail, commit_state)
    select $1, h.list_id, h.before + n, uuidv7(), now() - ($4 - n) * interval '7 minutes',
           case n % 3 when 0 then 'StepSummary.v1' when 1 then 'ToolCall.v1' else 'TodoChange.v1' end,
           'session', of.agent, of.session, case when n % 2 = 0 then 'DO' else 'CHECK' end, n / 3,
           'T00' || 1 + n % 5, case n % 3 when 1 then 'external' else 'internal' end,
           case n % 3 when 1 then 'tool' else 'todo' end, n % 3,
           case when n % 11 = 0 then 'FAILED' else 'OK' end,
           jsonb_build_object('tool', 'exec', 'took_ms', n * 37),
           case when n % 11 = 0 then 'it ended with status 1' end,
           case n % 3 when 0 then '比较了三个方案' when 1 then 'exec: cargo test' else 'T002: IN_PROGRESS' end,
           repeat('Checked the numbers against last week. ', n % 4), 'COMMITTED'
    from head h join of on of.session = h.list_id, generate_series(1, $4) n";

const TASKS: &str = "
    with steps as (
        select s.session, n, uuidv7() as id, now() - ($4 - n) * interval '9 minutes' as at
        from unnest($2::uuid[], $3::uuid[]) as s (session, agent), generate_series(1, $4) n),
    parts as (
        select id, null::uuid as parent, session, n, 'step' as kind,
               case when n % 2 = 0 then 'DO' else 'CHECK' end as name, at, 40 as seconds
        from steps
        union all
        select uuidv7(), id, session, n, 'model', 'scripted:one', at, 12 from steps
        union all
        select uuidv7(), id, session, n, 'tool', 'exec', at + interval '12 seconds', 20 from steps)
    insert into work.tasks
        (tenant_id, task_id, parent_id, session_id, kind, name, step, status, input_tokens,
         output_tokens, cost_micros, error, result, started_at, finished_at)
    select $1, id, parent, session, kind, name, n,
           case when kind = 'tool' and n % 5 = 0 then 'FAILED' else 'OK' end,
           case kind when 'model' then 4200 else 0 end, case kind when 'model' then 310 else 0 end,
           case kind when 'model' then 5400 else 0 end,
           case when kind = 'tool' and n % 5 = 0 then 'it ended with status 1' end,
           case kind when 'tool' then 'test result: ok. 42 passed' else '' end,
           at, at + seconds * interval '1 second'
    from parts";

const LEDGER: &str = "
    insert into work.ledger
        (tenant_id, entry_id, at, kind, agent_id, session_id, name, outcome, input_tokens,
         output_tokens, cost_micros, duration_ms)
    select $1, uuidv7(), now() - n * interval '9 minutes',
           case when n % 2 = 0 then 'model' else 'tool' end, s.agent, s.session,
           case when n % 2 = 0 then 'scripted:one' else 'exec' end, 'ok', 4200, 310, 5400, 12000
    from unnest($2::uuid[], $3::uuid[]) as s (session, agent), generate_series(1, $4) n";

const JOB_RUNS: &str = "
    with runs as (
        select job, n, date_trunc('day', now()) - ($3 - n) * interval '1 day' as at
        from unnest($2::uuid[]) as job, generate_series(1, $3) n),
    logged as (
        update schedule.jobs j
        set logged = $3, last_at = now() - interval '5 hours', last_status = 'ok', last_ms = 4200
        where j.tenant_id = $1 and j.job_id = any($2))
    insert into schedule.runs
        (tenant_id, job_id, n, slot_at, slot_last, origin, status, class, duration_ms, finished_at)
    select $1, job, n, at, at, 'due', case when n % 9 = 0 then 'error' else 'ok' end,
           case when n % 9 = 0 then 'overloaded' end, 1500 + n * 211, at + interval '20 seconds'
    from runs";
