-- Conversations that belong to a person who signed in. Which they are follows from the key, and is
-- noted by the database, so that every statement that creates or renames a session does it.

alter table session.sessions add column person_id uuid;

-- Keys of conversations that a person has named, and of direct messages of a linked account.
create function session.person_of_key(key text) returns uuid
    language sql immutable parallel safe
    set search_path = ''
as $$
    select substring(key from 
        '^agent:[^:]+:(?:api:=|dm:[^:]+:(?:[^:]+:)?=person%3A)per_([0-9a-f]{32})(?:/.*)?$')::uuid
$$;

create function session.note_person() returns trigger
    language plpgsql
    set search_path = ''
as $$
begin
    new.person_id := session.person_of_key(new.key);
    return new;
end $$;

create trigger note_person before insert or update of key on session.sessions
    for each row execute function session.note_person();

create index sessions_of_person on session.sessions (tenant_id, person_id, used_hour desc)
    where person_id is not null;
