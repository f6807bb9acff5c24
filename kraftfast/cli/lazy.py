"""Groups whose commands are loaded one by one: ``--help`` is quick, a file holds one command."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

import click

from kraftfast.cli.hints import did_you_mean

SENTENCE_MAX = 500
Commands = Mapping[str, tuple[str, str]]
"""Name -> (``module:attribute`` below ``kraftfast.cli``, what ``--help`` says without loading)."""


class Group(click.Group):
    """A group that says which command may have been meant."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            if not ctx.resilient_parsing:
                near = self._elsewhere(ctx, name) or did_you_mean(name, self.list_commands(ctx))
                ctx.fail(f"there is no command {name!r}{near}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show the first sentence of each command whole: the formatter breaks lines."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._sentence(name)) for name in self.list_commands(ctx)])

    def _sentence(self, name: str) -> str:
        return self.commands[name].get_short_help_str(SENTENCE_MAX)

    def _elsewhere(self, ctx: click.Context, name: str) -> str:
        """Return what to say of a command that a group of this one has; '' if none has it."""
        for group in self.list_commands(ctx):
            found = self.get_command(ctx, group)
            if isinstance(found, click.Group) and name in found.list_commands(ctx):
                return f"; did you mean '{group} {name}'?"
        return ""


class LazyGroup(Group):
    """Commands that are there; one whose module is not installed does not show."""

    # places: by name, as :data:`Commands`.

    def __init__(self, *args: Any, places: Commands, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.places = places

    def list_commands(self, ctx: click.Context) -> list[str]:
        there = [name for name, (place, _) in self.places.items() if _is_there(place)]
        return [*there, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        place, _ = self.places.get(name, ("", ""))
        if not place or not _is_there(place):
            return super().get_command(ctx, name)
        module, _, attribute = place.partition(":")
        found: click.Command = getattr(importlib.import_module(_full(module)), attribute)
        return found

    def _sentence(self, name: str) -> str:
        return self.places[name][1] if name in self.places else super()._sentence(name)


def lazy_group(places: Commands, **settings: Any) -> Callable[[Callable[..., Any]], LazyGroup]:
    """Return a decorator: the function becomes a :class:`LazyGroup` of these commands."""
    return click.group(cls=LazyGroup, places=places, **settings)


def _full(module: str) -> str:
    return f"kraftfast.cli.{module}"


def _is_there(place: str) -> bool:
    return importlib.util.find_spec(_full(place.partition(":")[0])) is not None
