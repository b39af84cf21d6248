INSERT INTO jobs.audit (token, actor, actor_kind, address, action, object, reason, outcome, detail)
VALUES (
    %(token)s, %(actor)s, %(kind)s, %(address)s, %(action)s, %(object)s, %(reason)s, %(outcome)s,
    %(detail)s
)
ON CONFLICT (token) DO NOTHING
