INSERT INTO jobs.audit
    (token, at, actor, actor_kind, address, action, object, reason, outcome, detail)
VALUES (
    %(token)s, %(at)s, %(actor)s, %(actor_kind)s, %(address)s, %(action)s, %(object)s, %(reason)s,
    %(outcome)s, %(detail)s
)
ON CONFLICT (token) DO NOTHING
