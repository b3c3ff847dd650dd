#!/usr/bin/env python3
"""How Doxygen reads a public header: there every comment outside of a function is documentation.

The house style marks it with /// where it precedes a declaration; the head of a file, groups of
members and comments behind a member are plain. Prints the header with Doxygen's marks; lines stay
where they are, but for one more at the top.
"""
import re
import sys
from pathlib import Path

# What is called the same everywhere does the same everywhere, and is said here once.
CONVENTIONS = [
    (r"operator(==|<=>)\(const \w+&\) const = default", "Compares all members."),
    (r"\bname_of\(", "As documents, messages and the command spell it."),
    (r"constexpr std::array<std::string_view, \d+> k\w+Names = ",
     "What name_of() gives, by value."),
    (r"^(?:\[\[nodiscard\]\] )?std::string to_json\(const \w+&",
     "The document as JSON: what save() writes."),
    (r"^(?:\[\[nodiscard\]\] )?\w+ \w+_from_json\(const std::string& text, const std::string& "
     r"place\)",
     "The document that `text` holds. `place` names it in errors. Throws InputError with the JSON "
     "path of what is wrong."),
    (r"^(?:\[\[nodiscard\]\] )?\w+ load_\w+\(const std::filesystem::path&",
     "The document in a file. Throws InputError with the JSON path of what is wrong."),
    (r"^void save\(const \w+&, const std::filesystem::path&",
     "Writes the document, whole or not at all. Throws InputError."),
]
UNSAID = (r"^\s*(?:virtual )?(?:~\w+\(\)(?: = default;|;| override;)|\w+\((?:const )?\w+&&?\)(?: "
          r"noexcept)? = (?:delete|default);|.*operator=\(.*\).* = (?:delete|default);|\w+\(\) = "
          r"default;)$")
# "double low = 0, high = 0;": one comment for both.
SEVERAL = re.compile(r"(\s*)((?:inline constexpr )?(?:std::|doc::)?\w+(?:::\w+)*(?:<[\w:, <>]+>)?) "
                     r"(\w+(?: = [^,;()]+|\{\})?(?:, \w+(?: = [^,;()]+|\{\})?)+);$")


def each_alone(code, text, above=False):
    """A declaration of several members as one of each, on the same line, all with this comment;
    None if it is of one."""
    several = SEVERAL.fullmatch(code.rstrip())
    if not several:
        return None
    parts = [f"{several[2]} {part};" for part in re.split(r", (?=\w+(?: =|\{|,|$))", several[3])]
    if above:  # which is the first one's already
        return several[1] + f" /** {text} */ ".join(parts)
    return several[1] + " ".join(f"{part} /**< {text} */" for part in parts)


def marked(lines):
    """The lines with /// and ///< for //, and @file in the head."""
    in_head = True
    behind = None  # the column of the comment behind the code of the line before
    above = []  # the comment above this line
    # public for the compiler, "Private to" a module for people: up to the next empty line
    hidden = False
    for number, line in enumerate(lines):
        alone = re.match(r"(\s*)//(/?)(?!/)(.*)", line)
        after_code = re.match(r"((?!\s*//)\s*\S.*?\s+)//(?!/)(\s.*)", line)
        hidden = (bool(line.strip())
                  and (hidden or bool(alone and alone[3].startswith(" Private to "))))
        if hidden:
            yield ""
        elif in_head and alone:
            yield ("/// @file\n" if number == 0 else "") + "///" + alone[3]
        elif alone and not alone[2] and len(alone[1]) == behind:
            yield f"{alone[1]}///<{alone[3]}"
        elif alone:
            above.append(alone[3])
            yield f"{alone[1]}///{alone[3]}"
        elif after_code and not re.match(r"\s*[}#]", line):
            behind, above = len(after_code[1]), []
            yield (each_alone(after_code[1], after_code[2].strip())
                   or f"{after_code[1]}///<{after_code[2]}")
            continue
        else:
            convention = next((text for pattern, text in CONVENTIONS if re.search(pattern, line)),
                              None)
            if re.match(UNSAID, line) and not above:
                yield ""
            elif above and (split := each_alone(line, " ".join(above), above=True)):
                yield split
            elif convention and not above:
                yield f"/** {convention} */ {line}"
            else:
                yield line
            behind, above = None, []
        in_head = in_head and bool(alone)


print("\n".join(marked(Path(sys.argv[1]).read_text().splitlines())))
