-- The original's tables are views here: for reading only.
SELECT core.make_read_only('public.e_invoice_gib_users');
SELECT core.make_read_only('public.e_despatch_gib_users');
SELECT core.make_read_only('public.gib_user_changelog');
