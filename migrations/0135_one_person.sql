-- Two records of one person become one: the record that is merged keeps its sign-in, which leads to the
-- other from then on.
alter table control.people
    add column merged_into uuid,
    add constraint people_merged_into foreign key (tenant_id, merged_into)
        references control.people (tenant_id, person_id) on delete cascade,
    add constraint people_merged_into_other check (merged_into <> person_id);
create index people_merged on control.people (tenant_id, merged_into) where merged_into is not null;

-- As before, and the conversations of users of programs who are a person.
create or replace function session.person_of_key(key text) returns uuid
    language sql immutable parallel safe
    set search_path = ''
as $$
    select substring(key from 
        '^agent:[^:]+:(?:api:=|dm:[^:]+:(?:[^:]+:)?=person%3A)per_([0-9a-f]{32})(?:@?/.*)?$')::uuid
$$;
