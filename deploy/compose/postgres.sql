-- What `docker-compose.yml` needs before the first migration: the services' login, which owns
-- nothing. The migrations make it a member of their two roles. Postgres is on no port of the host.
create role holdfast login password 'holdfast';
