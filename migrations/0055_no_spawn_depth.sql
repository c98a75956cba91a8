-- Tool policies have no field `spawn_depth` any more: a subagent never spawns another one. A policy
-- with an unknown field cannot be read, and would allow nothing.

-- The schema's owner sees no tenant's rows otherwise, where the owner is no superuser.
alter table control.policies no force row level security;
update control.policies set document = document - 'spawn_depth', version = version + 1
where document ? 'spawn_depth';
alter table control.policies force row level security;
