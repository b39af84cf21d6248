-- Geometries for PostGIS, where the server has it. They are in the schema tkgm_gis, which is made
-- when the store opens and the extension is there; without it, these triggers do nothing.

CREATE FUNCTION tkgm.update_geometry() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF to_regprocedure('tkgm_gis.outline(jsonb)') IS NULL THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'TRUNCATE' THEN
        TRUNCATE tkgm_gis.parcel_geometry;
    ELSIF TG_OP = 'DELETE' THEN
        DELETE FROM tkgm_gis.parcel_geometry AS g USING gone WHERE g.key = gone.key;
    ELSE
        INSERT INTO tkgm_gis.parcel_geometry AS g (key, geom)
        SELECT key, tkgm_gis.outline(body) FROM come
        ON CONFLICT (key) DO UPDATE SET geom = EXCLUDED.geom;
    END IF;
    RETURN NULL;
EXCEPTION WHEN OTHERS THEN
    -- A parcel is never lost because its geometry is.
    RAISE WARNING 'The geometries of tkgm_gis were not updated: %', SQLERRM;
    RETURN NULL;
END
$$;
CREATE TRIGGER geometry_added AFTER INSERT ON core.parcels
    REFERENCING NEW TABLE AS come FOR EACH STATEMENT EXECUTE FUNCTION tkgm.update_geometry();
CREATE TRIGGER geometry_changed AFTER UPDATE ON core.parcels
    REFERENCING NEW TABLE AS come FOR EACH STATEMENT EXECUTE FUNCTION tkgm.update_geometry();
CREATE TRIGGER geometry_removed AFTER DELETE ON core.parcels
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION tkgm.update_geometry();
CREATE TRIGGER geometry_emptied AFTER TRUNCATE ON core.parcels
    FOR EACH STATEMENT EXECUTE FUNCTION tkgm.update_geometry();
