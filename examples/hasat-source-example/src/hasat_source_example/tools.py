"""Tools for MCP clients."""

from hasat.source import NotFoundError, Tool, ToolContext, ToolResponse


class Conversion(ToolResponse):
    amount: float
    rate: float


def tools(context: ToolContext) -> tuple[Tool, ...]:
    async def example_convert(amount: float, currency: str) -> Conversion:
        """Convert an amount of a foreign currency at the newest mirrored rate."""
        query = "SELECT body FROM core.example_rates WHERE key = %s"
        async with context.store.connection() as conn:
            row = await (await conn.execute(query, [currency.upper()])).fetchone()
        if row is None:
            raise NotFoundError(f"There is no rate for {currency}.")
        rate = row[0]["rate"]
        return Conversion(ts_utc=await context.store.now(), amount=amount * rate, rate=rate)

    return (Tool(example_convert),)
