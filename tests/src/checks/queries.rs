//! The queries: each finds what breaks a promise.
//!
//! They return a text that says what and where. A word on what they lean on: the text of each
//! message of a client begins with its id, and the answer to it names that id. Other messages are the
//! product's own: reminders that fired, and ends of subagents and chains.

/// What must find nothing: the promise, and the query.
pub(super) const BROKEN: [(&str, &str); 17] = [
    (
        "I1 an accepted message is finished",
        "select i.message_id::text || ' is ' || i.state || ', its session ' || l.state
         from session.inbox i join session.session_lease l using (tenant_id, session_id)
         where i.state not in ('done', 'dead')",
    ),
    (
        "I1 what is dead has its reason",
        "select message_id::text from session.inbox where state = 'dead' and coalesce(reason, '') = ''",
    ),
    (
        "I2 a message is stored once",
        "select split_part(body->>'text', ' ', 1) from session.inbox
         where body->>'text' ~ '^t[0-9]+m[0-9]{6} '
         group by tenant_id, split_part(body->>'text', ' ', 1) having count(*) > 1",
    ),
    (
        "I3 messages are first heard in their order",
        "select session_id::text || ' hears ' || seq || ' after ' || before from (
             select session_id, seq, lag(seq) over (partition by session_id order by place) as before
             from (select session_id, (body->>'seq')::bigint as seq, min(seq) as place
                   from session.entries where kind = 'heard'
                   group by session_id, (body->>'seq')::bigint) first) heard
         where seq < before",
    ),
    (
        "I3 a message is heard once, but for those whose turn died under another",
        "select e.session_id::text || ' hears ' || (e.body->>'seq') || ' ' || count(*) || ' times'
         from session.entries e where e.kind = 'heard'
           and not exists (select from session.inbox d where d.session_id = e.session_id and d.state = 'dead')
         group by e.session_id, e.body->>'seq' having count(*) > 1",
    ),
    (
        "I3 no message is skipped: what is done was heard, unless its client cancelled it",
        "select i.message_id::text from session.inbox i
         where i.state = 'done' and i.outcome is distinct from 'cancelled' and not exists (
             select from session.entries e where e.session_id = i.session_id and e.kind = 'heard'
               and (e.body->>'seq')::bigint = i.seq)",
    ),
    (
        "I3 turns end in the order of their messages",
        "select session_id::text || ' finishes ' || seq || ' before its predecessor' from (
             select session_id, seq, run_id, finished_at,
                    lag(run_id) over w as run_before, lag(finished_at) over w as before
             from session.inbox window w as (partition by session_id order by seq)) finished
         where run_id <> run_before and finished_at < before",
    ),
    (
        "I4 a message is completed by one run, which ended as the message says",
        "select i.message_id::text || ' is ' || coalesce(i.outcome, '-') || ', its run ' || coalesce(r.outcome, '-')
         from session.inbox i left join session.runs r on r.run_id = i.run_id
         where i.state = 'done' and r.outcome is distinct from i.outcome",
    ),
    (
        "I4 a completed run has one answer",
        "select r.run_id::text || ' has ' || count(e.seq) from session.runs r
         left join session.entries e on e.session_id = r.session_id and e.run_id = r.run_id
              and e.kind = 'thought' and not e.body ? 'calls'
         where r.outcome = 'completed' group by r.run_id having count(e.seq) <> 1",
    ),
    (
        "I4 the answer is the answer to that message",
        "select split_part(i.body->>'text', ' ', 1) || ' got `' || coalesce(e.body->>'text', '-') || '`'
         from session.inbox i join session.runs r on r.run_id = i.run_id
         left join session.entries e on e.session_id = r.session_id and e.seq = r.reply_seq
         where i.outcome = 'completed' and i.body->>'text' ~ '^t[0-9]+m[0-9]{6} '
           and coalesce(position(split_part(i.body->>'text', ' ', 1) in e.body->>'text'), 0) = 0",
    ),
    (
        "I4 a completed run that was asked on a channel replies there: by its answer or by its notes",
        "select r.run_id::text || ' replies ' || replies || ' times, and not ' || greatest(notes, 1) from (
             select r.run_id,
                (select count(*) from session.deliveries d where d.run_id = r.run_id and d.part = 0) as replies,
                (select count(*) from session.entries t, jsonb_array_elements(t.body->'calls') c,
                        session.entries b
                 where t.session_id = r.session_id and t.run_id = r.run_id and t.kind = 'thought'
                   and c->>'tool' = 'message' and b.session_id = r.session_id and b.kind = 'returned'
                   and b.body->>'call' = c->>'id' and b.body->'failed' is distinct from 'true') as notes
             from session.runs r where r.outcome = 'completed' and exists (
                 select from session.inbox i where i.run_id = r.run_id and i.target is not null)) r
         where replies <> greatest(notes, 1)",
    ),
    // These platforms leave no outcome unknown: they have keys, or can be asked.
    (
        "I4 every reply to a keyed or reconcilable channel is sent, and no reply is refused or left lying",
        "select delivery_id::text || ' on ' || channel || ' is ' || state || ': ' || coalesce(reason, '-')
         from session.deliveries
         where state in ('pending', 'sending', 'dead') or (channel in ('webhook', 'matrix', 'slack', 'discord', 'email') and state <> 'sent')",
    ),
    (
        "I5 epochs never go back along a journal, which has no gap",
        "select session_id::text || ' at ' || seq from (
             select session_id, seq, epoch, lag(epoch) over w as before, row_number() over w as place
             from session.entries window w as (partition by session_id order by seq)) e
         where epoch < before or seq <> place",
    ),
    (
        "I6 a call is begun once and returns once",
        "select session_id::text || ' ' || kind || ' ' || (body->>'call') || ' ' || count(*) || ' times'
         from session.entries where kind in ('called', 'returned')
         group by session_id, kind, body->>'call' having count(*) > 1",
    ),
    (
        "I7 every session is at rest, and the lease's counts agree with the inbox and the journal",
        "select l.session_id::text || ' is ' || l.state || ', ' || l.done_in || ' of ' || (l.next_in - 1)
                || ' done, ' || l.attempts || ' attempts'
         from session.session_lease l
         where l.state <> 'WAIT' or l.done_in <> l.next_in - 1 or l.attempts <> 0 or l.owner is not null
            or l.next_in - 1 <> (select count(*) from session.inbox i where i.session_id = l.session_id)
                + (select count(*) from session.tombstones p where p.session_id = l.session_id)
            or l.next_entry - 1 <> (select count(*) from session.entries e where e.session_id = l.session_id)",
    ),
    (
        "I7 no place in flight leaks",
        "select tenant_id::text || ' has ' || sum(in_flight) from session.tenant_flight
         group by tenant_id having sum(in_flight) <> 0",
    ),
    (
        "I10 what one tenant said is in no other's rows",
        "select t.name || ' has ' || (e.body->>'text') from session.entries e
         join control.tenants t using (tenant_id)
         where e.kind = 'thought' and exists (
             select from regexp_matches(e.body->>'text', 't[0-9]+m[0-9]{6}', 'g') id
             where id[1] not like t.name || 'm%')",
    ),
];
