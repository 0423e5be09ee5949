"""`jesenska completion`: prints a script for bash (3.2 or later) or zsh that completes the arguments of every tool
with the Tab key.

    eval "$(jesenska completion bash)"                     in ~/.bashrc, or the script in a file that is sourced there
    eval "$(jesenska completion zsh)"                      in ~/.zshrc after compinit, or
    jesenska completion zsh > "${fpath[1]}/_jesenska"

The script contains flags, the possible values of flags, and names of settings. They are taken from the tools' parsers
and the tables of settings when the script is printed, so that Tab itself starts no Python. Only names of topics are
requested from the cluster, if the command line contains --bootstrap-server or --zookeeper. The request takes at most
two seconds and prints no error messages. Tools are completed under their names and under Kafka's script names
(kafka-topics.sh), with or without a path in front.

Names of groups, brokers and partitions, and lists with commas, are not completed.

The package shtab makes such scripts from argparse's parsers. But its scripts complete nothing after `--flag=` or for
Kafka's script names, and in zsh they stop at a flag whose value is called HOST:PORT. With shtab about half of the
lines here would still be needed, and every installation would have one more dependency."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points

from jesenska.config.settings.broker_settings import BROKER_SETTINGS
from jesenska.config.settings.client_settings import CONSUMER_SETTINGS, PRODUCER_SETTINGS
from jesenska.config.settings.topic_settings import TOPIC_SETTINGS

SHELLS = ("bash", "zsh")
_SETTINGS = {
    "topic": TOPIC_SETTINGS,
    "broker": BROKER_SETTINGS,
    "producer": PRODUCER_SETTINGS,
    "consumer": CONSUMER_SETTINGS,
}
#: The flags whose values are settings, each with the table of these settings.
_TAKES_SETTINGS = {
    "kafka-topics --config": "topic",
    "kafka-server-start --override": "broker",
    "jesenska up --override": "broker",
    "kafka-console-producer --command-property": "producer",
    "kafka-producer-perf-test --command-property": "producer",
    "kafka-console-consumer --command-property": "consumer",
    "kafka-consumer-perf-test --command-property": "consumer",
}
#: The kind of a flag's value, by the value's name in the help text.
_BY_METAVAR = {"FILE": "file", "FILE[,...]": "file", "DIR": "directory", "TOPIC": "topic", "TOPIC[:N,N]": "topic"}


@dataclass(frozen=True, slots=True)
class Value:
    """The value of a flag. `kind` is "words" (a fixed list), "file", "directory", "topic", "settings", or "text" for
    any other text."""

    name: str
    kind: str
    words: tuple[str, ...] = ()
    is_optional: bool = False
    is_many: bool = False


@dataclass(frozen=True, slots=True)
class Flag:
    name: str
    help: str
    #: The value of the flag; None for a flag without a value.
    value: Value | None
    is_repeated: bool


@dataclass(frozen=True, slots=True)
class Tool:
    """A command-line tool such as kafka-topics, or a command of the tool jesenska, such as "jesenska up"."""

    name: str
    help: str
    flags: tuple[Flag, ...]
    #: The value that the tool takes without a flag, such as `bash` in `jesenska completion bash`; None without such a
    #: value.
    positional: Value | None


def script(shell: str) -> str:
    """Returns the whole completion script for a shell."""
    tools = list(_tools())
    return _bash(tools) if shell == "bash" else _zsh(tools)


# --- the contents of the parsers -------------------------------------------------------------------------------------


def _tools() -> Iterator[Tool]:
    for entry in sorted(entry_points(group="console_scripts"), key=lambda entry: entry.name):
        if entry.module.startswith("jesenska.cli."):
            yield from _of_parser(entry.name, "", vars(import_module(entry.module))["_parser"]())


def _of_parser(name: str, described: str, parser: argparse.ArgumentParser) -> Iterator[Tool]:
    flags, positional, commands = [], None, []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            commands = [(f"{name} {command}", helps[command], found) for command, found in action.choices.items()]
            positional = Value("COMMAND", "words", tuple(action.choices))
        elif not action.option_strings:
            positional = _value(name, action)
        elif action.help != argparse.SUPPRESS:
            value = None if action.nargs == 0 else _value(name, action)
            repeated = isinstance(action, (argparse._AppendAction, argparse._ExtendAction))
            flags += [
                Flag(option, (action.help or "").replace("%%", "%"), value, repeated)
                for option in action.option_strings
            ]
    yield Tool(name, described, tuple(flags), positional)
    for command in commands:
        yield from _of_parser(*command)


def _value(name: str, action: argparse.Action) -> Value:
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper().replace("_", "-")
    is_optional, is_many = action.nargs == "?", action.nargs in ("+", "*", argparse.REMAINDER)
    if action.choices is not None:
        return Value(metavar, "words", tuple(map(str, action.choices)), is_optional, is_many)
    for option in action.option_strings:
        settings = _TAKES_SETTINGS.get(f"{name} {option}")
        if settings is not None:
            return Value(metavar, "settings", (settings,), is_optional, is_many)
    return Value(metavar, _BY_METAVAR.get(metavar, "text"), (), is_optional, is_many)


def _commands(tools: Iterable[Tool]) -> list[str]:
    """Returns all names under which the tools are completed."""
    names = [tool.name for tool in tools if " " not in tool.name]
    return [spelling for name in names for spelling in ((name,) if name == "jesenska" else (name, f"{name}.sh"))]


def _assignments(prefix: str) -> str:
    """Returns shell variables that contain the names of settings, one variable for each table of settings."""
    return "\n".join(
        f"{prefix}{kind}='{' '.join(f'{setting.name}=' for setting in table)}'" for kind, table in _SETTINGS.items()
    )


# --- bash ------------------------------------------------------------------------------------------------------------

_BASH = r"""# What Tab offers behind jesenska's tools, in bash. Made by: jesenska completion bash

@settings

# The flags of a tool, into `flags`.
_jesenska_flags() {
    case $1 in
@flags
    esac
}

# What follows a flag, or stands without one (''), into `kind`; nothing follows a flag that is not here.
_jesenska_value() {
    case "$1 $2" in
@values
    esac
}

# Names of topics, from the cluster that the line names; asked through the kafka-topics beside the tool.
_jesenska_topics() {
    local command=$1 sh=
    [[ $COMP_LINE =~ [[:space:]](--bootstrap-server|--broker-list|--zookeeper)[=[:space:]][[:space:]]*([^[:space:]]+)[[:space:]] ]] || return
    local where=${BASH_REMATCH[1]} at=${BASH_REMATCH[2]}
    [[ $where == --broker-list ]] && where=--bootstrap-server
    [[ $command == *.sh ]] && sh=.sh
    [[ $command == */* ]] && command=${command%/*}/kafka-topics$sh || command=kafka-topics$sh
    timeout 2 "$command" "$where" "$at" --list 2>/dev/null </dev/null
}

_jesenska() {
    local -a words
    local tool line word index flag flags= kind= one
    COMPREPLY=()
    # By blanks, not as bash parts words: "host:9092" and "--flag=value" are one here.
    line=${COMP_LINE:0:COMP_POINT}
    read -ra words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=('')
    index=$((${#words[@]} - 1))
    ((index > 0)) || return
    word=${words[index]}
    tool=${words[0]##*/}
    tool=${tool%.sh}
    if [[ $tool == jesenska ]] && ((index > 1)); then
        tool="jesenska ${words[1]}"
    fi
    if [[ $word == --*=* ]]; then
        flag=${word%%=*}
        word=${word#*=}
        _jesenska_value "$tool" "$flag"
        [[ -n $kind ]] || return
    elif [[ $word == -* ]]; then
        _jesenska_flags "$tool"
        COMPREPLY=($(compgen -W "$flags" -- "$word"))
        return
    else
        flag=${words[index - 1]}
        [[ $flag == -* ]] && _jesenska_value "$tool" "$flag"
        while ((index > 1)) && [[ -z $kind && ${words[index - 1]} != -* ]]; do
            index=$((index - 1))
            [[ ${words[index - 1]} == -* ]] && _jesenska_value "$tool" "${words[index - 1]}"
            [[ $kind == many\ * ]] || kind=
        done
        [[ -n $kind ]] || _jesenska_value "$tool" ''
        if [[ -z $kind ]]; then
            _jesenska_flags "$tool"
            COMPREPLY=($(compgen -W "$flags" -- "$word"))
            return
        fi
    fi
    kind=${kind#many }
    case $kind in
    words\ *)
        COMPREPLY=($(compgen -W "${kind#words }" -- "$word"))
        ;;
    settings\ *)
        [[ $word == *=* ]] && return # a name is there already
        kind=_jesenska_settings_of_${kind#settings }
        COMPREPLY=($(compgen -W "${!kind}" -- "$word"))
        compopt -o nospace 2>/dev/null
        ;;
    topic)
        COMPREPLY=($(compgen -W "$(_jesenska_topics "${words[0]}")" -- "$word"))
        ;;
    file | directory)
        flag=-f
        [[ $kind == directory ]] && flag=-d
        while IFS= read -r one; do
            COMPREPLY+=("$one")
        done < <(compgen "$flag" -- "$word")
        compopt -o filenames 2>/dev/null
        ;;
    esac
}

complete -F _jesenska @commands
"""  # noqa: E501


def _bash(tools: Sequence[Tool]) -> str:
    flags = "\n".join(f"    '{tool.name}') flags='{' '.join(flag.name for flag in tool.flags)}' ;;" for tool in tools)
    values: dict[str, list[str]] = {}
    for tool in tools:
        for name, value in [("", tool.positional), *((flag.name, flag.value) for flag in tool.flags)]:
            if value is not None:
                kind = f"{'many ' if value.is_many else ''}{' '.join((value.kind, *value.words))}"
                values.setdefault(kind, []).append(f"'{tool.name} {name}'")
    cases = "\n".join(f"    {' | '.join(patterns)}) kind='{kind}' ;;" for kind, patterns in values.items())
    return _filled(
        _BASH,
        settings=_assignments("_jesenska_settings_of_"),
        flags=flags,
        values=cases,
        commands=" ".join(_commands(tools)),
    )


# --- zsh -------------------------------------------------------------------------------------------------------------

_ZSH = r"""#compdef @commands
# What Tab offers behind jesenska's tools, in zsh. Made by: jesenska completion zsh

_jesenska_settings() {
    local -a names
    local @settings
    # What _arguments passes on to compadd stands in front.
    case $argv[-1] in
    (topic) names=(${=topic}) ;;
    (broker) names=(${=broker}) ;;
    (producer) names=(${=producer}) ;;
    (consumer) names=(${=consumer}) ;;
    esac
    compadd "${(@)argv[1,-2]}" -S '' -a names
}

# Names of topics, from the cluster that the line names; asked through the kafka-topics beside the tool.
_jesenska_topics() {
    local -a names
    local index where= at= command=$_jesenska_command sh=
    for ((index = 2; index <= $#words; index++)); do
        case $words[index] in
        (--bootstrap-server | --broker-list | --zookeeper) where=$words[index] at=$words[index+1] ;;
        (--bootstrap-server=* | --broker-list=* | --zookeeper=*) where=${words[index]%%=*} at=${words[index]#*=} ;;
        esac
    done
    [[ -n $at ]] || return 1
    [[ $where == --broker-list ]] && where=--bootstrap-server
    [[ $command == *.sh ]] && sh=.sh
    [[ $command == */* ]] && command=${command:h}/kafka-topics$sh || command=kafka-topics$sh
    names=(${(f)"$(timeout 2 $command $where $at --list 2>/dev/null </dev/null)"})
    compadd "$@" -a names
}

_jesenska() {
    local _jesenska_command=${(Q)words[1]} tool
    local -a commands
    tool=${${_jesenska_command:t}%.sh}
    if [[ $tool == jesenska ]] && ((CURRENT > 2)); then
        tool="jesenska $words[2]"
        shift words
        ((CURRENT--))
    fi
    case $tool in
@tools
    esac
}

if [[ $funcstack[1] == _jesenska ]]; then
    _jesenska "$@"
else
    compdef _jesenska @commands
fi
"""


def _zsh(tools: Sequence[Tool]) -> str:
    parts = []
    for tool in tools:
        specs = [_zsh_flag(flag) for flag in tool.flags]
        commands = [other for other in tools if other.name.startswith(f"{tool.name} ")]
        # If a flag takes several values, the second and further values are declared without the flag. If they were
        # declared as values of the flag, zsh's _arguments would complete no flags after them.
        many = [flag.value for flag in tool.flags if flag.value is not None and flag.value.is_many]
        positional = tool.positional or (many[0] if many else None)
        if commands:
            described = " ".join(_quoted(f"{other.name.rpartition(' ')[2]}:{other.help}") for other in commands)
            parts.append(
                f"    ({_quoted(tool.name)})\n        commands=({described})\n        _describe command commands"
            )
            specs = [*specs, "'*: :'"]
        else:
            parts.append(f"    ({_quoted(tool.name)})")
            if positional is not None:
                specs.append(_quoted(f"{'*' if positional.is_many else ''}:{_zsh_value(positional)}"))
        parts.append("        _arguments \\\n            " + " \\\n            ".join(specs) + "\n        ;;")
    settings = " ".join(_assignments("").split("\n"))
    return _filled(_ZSH, settings=settings, tools="\n".join(parts), commands=" ".join(_commands(tools)))


def _zsh_flag(flag: Flag) -> str:
    described = "".join(f"\\{letter}" if letter in "[]\\" else letter for letter in flag.help)
    repeated = "*" if flag.is_repeated else ""
    if flag.value is None:
        return _quoted(f"{repeated}{flag.name}[{described}]")
    equals = "=" if flag.name.startswith("--") else ""
    return _quoted(
        f"{repeated}{flag.name}{equals}[{described}]:{':' if flag.value.is_optional else ''}{_zsh_value(flag.value)}"
    )


def _zsh_value(value: Value) -> str:
    name = value.name.replace(":", "\\:")
    match value.kind:
        case "words":
            return f"{name}:({' '.join(value.words)})"
        case "settings":
            return f"{name}:_jesenska_settings {value.words[0]}"
        case "file":
            return f"{name}:_files"
        case "directory":
            return f"{name}:_files -/"
        case "topic":
            return f"{name}:_jesenska_topics"
    return f"{name}: "


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _filled(template: str, **parts: str) -> str:
    for name, text in parts.items():
        template = template.replace(f"@{name}", text)
    return template
