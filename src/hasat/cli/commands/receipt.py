"""The commands `hasat receipt`: verify receipts anywhere, list them, check their chain."""

import sys
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import httpx2
import typer
from rich.json import JSON
from rich.table import Table
from rich.text import Text

from hasat.api.routes.receipts import receipt_document, summary_document
from hasat.console import context, output
from hasat.console.runtime import run_with_store, with_audit
from hasat.console.tables import Column, local_time
from hasat.errors import NothingToDoError, UsageError
from hasat.messages import msg
from hasat.receipts.jws import (
    InvalidReceiptError,
    PublicKeys,
    Receipt,
    parse_jwks,
    verify,
)
from hasat.receipts.keys import SigningKey, known_keys, rotate_key
from hasat.receipts.ledger import (
    find_receipt,
    list_key,
    list_receipts,
    listed_keys,
    verify_chain,
)
from hasat.settings import Settings
from hasat.store import Store

app = typer.Typer(help="Signed receipts of answers.", no_args_is_help=True)

_MAX_BYTES = 1_000_000
_SECONDS = 15.0


@app.command("verify")
def verify_command(
    ctx: typer.Context,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The receipt, a compact JWS; `-` reads stdin.")
    ],
    jwks: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|URL",
            help="The public keys, from /.well-known/jwks.json of the server; by default those of "
            "this installation.",
        ),
    ] = None,
    json: output.JsonFlag = False,
) -> None:
    """Verify that a receipt was issued with one of the keys and that no byte of it was changed.

    Needs no server and no database. Exit code 0: valid; 1: not valid, with the reason.

    Examples: `hasat receipt verify answer.jws --jwks jwks.json` ·
    `hasat receipt verify answer.jws --jwks https://hasat.example/.well-known/jwks.json --json`
    """
    text = _read_receipt(file)
    keys = known_keys(context.get_settings(ctx)) if jwks is None else _read_keys(jwks)
    if not keys:
        raise UsageError(
            msg("There are no public keys to verify with."),
            remedy=msg("Name them with --jwks: /.well-known/jwks.json of the server has them."),
        )
    try:
        receipt = verify(text, keys)
    except InvalidReceiptError as error:
        if json:
            output.emit({"valid": False, "reason": str(error.message)}, json=True, human=Text)
        raise
    output.emit(
        {"valid": True, "kid": receipt.kid, "claims": receipt.claims},
        json=json,
        human=lambda: _valid_text(receipt),
    )


def _read_receipt(file: Path) -> str:
    data = _read_bytes(file)
    # One line break at the end is what editors and shells add; any other byte is part of it.
    data = data.removesuffix(b"\n").removesuffix(b"\r")
    try:
        return data.decode("ascii")
    except UnicodeDecodeError as error:
        raise InvalidReceiptError(
            msg(
                "It is not a compact JWS: byte {place} is not a base64url character.",
                place=error.start,
            )
        ) from error


def _read_bytes(file: Path) -> bytes:
    try:
        if str(file) == "-":
            data = sys.stdin.buffer.read(_MAX_BYTES + 1)
        else:
            with file.open("rb") as opened:
                data = opened.read(_MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(
            msg("Cannot read {file}: {reason}.", file=file, reason=error.strerror),
            remedy=msg("Name a file that exists."),
        ) from error
    if len(data) > _MAX_BYTES:
        raise UsageError(msg("{file} is larger than {limit:,} bytes.", file=file, limit=_MAX_BYTES))
    return data


def _read_keys(origin: str) -> PublicKeys:
    if not origin.startswith(("https://", "http://")):
        return parse_jwks(_read_bytes(Path(origin)))
    try:
        with httpx2.stream("GET", origin, timeout=_SECONDS, follow_redirects=True) as response:
            response.raise_for_status()
            data = b""
            for piece in response.iter_bytes():
                data += piece
                if len(data) > _MAX_BYTES:
                    raise UsageError(
                        msg("{file} is larger than {limit:,} bytes.", file=origin, limit=_MAX_BYTES)
                    )
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise UsageError(
            msg("Cannot download the keys from {url}: {error}.", url=origin, error=error),
            remedy=msg("Download them in another way, and name the file."),
        ) from error
    return parse_jwks(data)


def _valid_text(receipt: Receipt) -> Text:
    claims = receipt.claims
    rows = (
        (msg("Issued by"), claims["iss"]),
        (msg("Issued at"), f"{receipt.issued_at.astimezone():%Y-%m-%d %H:%M:%S %z}"),
        (msg("Receipt"), claims["jti"]),
        (msg("Asked"), _request_text(claims["request"])),
        (msg("Answer"), _one_line(claims["response"])),
        (msg("Read from"), _one_line(claims["version"])),
        (msg("Lists"), _one_line(claims["lists"])),
        (msg("Key"), receipt.kid),
    )
    lines = [output.localize(msg("Valid: issued with this key and unchanged."))]
    lines += [f"  {output.localize(name)}: {value}" for name, value in rows]
    return Text("\n".join(lines))


def _request_text(request: dict[str, Any]) -> str:
    query = "&".join(f"{name}={value}" for name, value in request.get("query", {}).items())
    path = f"{request.get('method')} {request.get('path')}"
    return f"{path}?{query}" if query else path


def _one_line(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)


@app.command("list")
def list_(
    ctx: typer.Context,
    identifier: Annotated[str | None, typer.Option(help="Only about this key.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number.")] = 20,
    json: output.JsonFlag = False,
) -> None:
    """List receipts, newest first.

    Examples: `hasat receipt list` · `hasat receipt list --identifier 1234567890 --json`
    """
    settings = context.get_settings(ctx)
    found = run_with_store(
        settings,
        lambda store: list_receipts(store, owner=None, identifier=identifier, limit=limit),
    )

    def human() -> Table:
        table = output.table("id", "identifier", Column("datasets", 2), "at", Column("asked by", 1))
        for one in found:
            at = local_time(one.issued_at, settings)
            table.add_row(str(one.id), one.identifier, ", ".join(one.datasets), at, one.owner)
        return table

    output.emit([summary_document(one) for one in found], json=json, human=human)


@app.command()
def show(
    ctx: typer.Context,
    receipt: Annotated[UUID, typer.Argument(metavar="ID", help="The id of the receipt.")],
    jws: Annotated[
        bool, typer.Option("--jws", help="Only the receipt itself, for a file.")
    ] = False,
    json: output.JsonFlag = False,
) -> None:
    """Show what a receipt states.

    Examples: `hasat receipt show 5f0c6d3e-8f0e-4a55-9c39-0d6f2c7d1a10` ·
    `hasat receipt show 5f0c6d3e-8f0e-4a55-9c39-0d6f2c7d1a10 --jws > answer.jws`
    """
    found = run_with_store(
        context.get_settings(ctx), lambda store: find_receipt(store, receipt, owner=None)
    )
    if jws:
        print(found.jws)
        return
    document = receipt_document(found)
    output.emit(document, json=json, human=lambda: JSON.from_data(document, ensure_ascii=False))


@app.command()
def check(
    ctx: typer.Context,
    newest: Annotated[
        int | None,
        typer.Option(min=1, max=1_000_000_000, help="Only this many, the newest; by default all."),
    ] = None,
    json: output.JsonFlag = False,
) -> None:
    """Check that the stored receipts are those that were issued: none changed, missing or added.

    Examples: `hasat receipt check` · `hasat receipt check --newest 1000 --json`
    """

    async def work(store: Store) -> int:
        return await verify_chain(store, await listed_keys(store), newest=newest)

    count = run_with_store(context.get_settings(ctx), work)
    output.emit(
        {"receipts": count},
        json=json,
        human=lambda: Text(
            output.localize(msg("{count:,} receipts, none changed, missing or added.", count=count))
        ),
    )


@app.command()
def rotate(ctx: typer.Context, json: output.JsonFlag = False) -> None:
    """Sign with a new key from now on; receipts of the old one stay valid.

    Example: `hasat receipt rotate`
    """
    settings = context.get_settings(ctx)

    async def work(store: Store) -> SigningKey:
        return await _rotate(store, settings)

    new = run_with_store(settings, with_audit("receipt.rotate", "", work))
    output.emit(
        {"kid": new.kid},
        json=json,
        human=lambda: Text(output.localize(msg("New key: {kid}", kid=new.kid))),
    )


async def _rotate(store: Store, settings: Settings) -> SigningKey:
    if settings.receipts.key is None and not known_keys(settings):
        raise NothingToDoError(msg("There is no key yet; the first receipt creates it."))
    old, new = rotate_key(settings)
    for key in (old, new):
        await list_key(store, key)
    return new
