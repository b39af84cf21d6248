-- What hasat.text.fold does, in any database locale; a test compares the two.
CREATE FUNCTION core.fold(given text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    folded text COLLATE "C" := translate(
        lower(given COLLATE "C"),
        E'İŞĞÜÖÇışğüöçÂâÎîÛû\t\n\r',
        'isguocisguocaaiiuu   '
    );
BEGIN
    -- Titles of other Latin letters are few: only they pay for them.
    IF octet_length(folded) <> length(folded) THEN
        folded := translate(
            regexp_replace(folded, E'[\u0300-\u036F\u00AD\u200B-\u200D\u2060\uFEFF]', '', 'g'),
            E'ÀÁÃÄÅÆÈÉÊËÌÍÏÐÑÒÓÔÕØÙÚÝÞàáãäåèéêëìíïñòóôõøùúýÿĀāĂăĄąĆćĈĉĊċČčĎďĐđĒēĔĕĖėĘęĚěĜĝĠġĢģĤĥĦħĨĩĪīĬĭĮįĲĴĵĶķĹĺĻļĽľĿŀŁłŃńŅņŇňŉŊŌōŎŏŐőŒŔŕŖŗŘřŚśŜŝŠšŢţŤťŦŧŨũŪūŬŭŮůŰűŲųŴŵŶŷŸŹźŻżŽžſẞ\u00A0\u2003\u2009\u202F\u3000',
            'aaaaaæeeeeiiiðnooooouuyþaaaaaeeeeiiinooooouuyyaaaaaaccccccccddddeeeeeeeeeegggggghhhhiiiiiiiiĳjjkkllllllllllnnnnnnnŋooooooœrrrrrrssssssttttttuuuuuuuuuuuuwwyyyzzzzzzsß     '
        );
    END IF;
    IF strpos(folded, '  ') > 0 THEN
        folded := regexp_replace(folded, ' {2,}', ' ', 'g');
    END IF;
    RETURN btrim(folded, ' ');
END
$$;
