-- The template and the parameters of a run's message, from which it is shown in other languages.
ALTER TABLE jobs.run ADD COLUMN message_data jsonb;

-- The English text of such a message, for statements that write one.
CREATE FUNCTION jobs.message_text(_message jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    _text text := _message ->> 'template';
    _name text;
    _value text;
BEGIN
    FOR _name, _value IN SELECT * FROM jsonb_each_text(_message -> 'params') LOOP
        _text := replace(_text, '{' || _name || '}', coalesce(_value, ''));
    END LOOP;
    RETURN _text;
END
$$;
