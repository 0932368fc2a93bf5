// Reader of the text form. A line is split into words; every word is a keyword that says how many
// words follow, so a misspelt or missing one is found where it stands.
#include <charconv>
#include <limits>
#include <optional>

#include "planner/program/fingerprint.h"
#include "planner/program/text.h"
#include "planner/program/text_names.h"

namespace bayplan {
namespace {

/// Thrown inside this file only; parse_text turns it into an Error.
struct SyntaxError {
  std::string message;
};

/// The words of one line, read from left to right.
class Words {
 public:
  explicit Words(std::string_view line) {
    std::size_t at = 0;
    while (at < line.size()) {
      const std::size_t begin = line.find_first_not_of(" \t\r", at);
      if (begin == std::string_view::npos) break;
      if (line[begin] == '#') break;
      at = std::min(line.find_first_of(" \t\r", begin), line.size());
      words_.push_back(line.substr(begin, at - begin));
    }
  }
  bool done() const { return next_ == words_.size(); }
  std::string_view peek() const { return done() ? std::string_view() : words_[next_]; }
  std::string_view take(std::string_view what) {
    if (done()) throw SyntaxError{"the line ends where " + std::string(what) + " should be"};
    return words_[next_++];
  }
  bool take_if(std::string_view word) {
    if (done() || words_[next_] != word) return false;
    ++next_;
    return true;
  }
  void expect(std::string_view word) {
    const std::string_view found = take(word);
    if (found != word) {
      throw SyntaxError{"expected \"" + std::string(word) + "\", found \"" + std::string(found) +
                        '"'};
    }
  }

 private:
  std::vector<std::string_view> words_;
  std::size_t next_ = 0;
};

template <class Int>
Int number(std::string_view word, std::string_view what) {
  Int value{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) {
    throw SyntaxError{std::string(what) + " should be a whole number, not \"" + std::string(word) +
                      '"'};
  }
  return value;
}

std::int32_t small(Words& words, std::string_view what) {
  return number<std::int32_t>(words.take(what), what);
}
std::int64_t large(Words& words, std::string_view what) {
  return number<std::int64_t>(words.take(what), what);
}

/// The number behind a one-letter prefix, as in b5 and i12.
std::int32_t indexed(std::string_view word, char prefix, std::string_view what) {
  if (word.size() < 2 || word.front() != prefix) {
    throw SyntaxError{"expected " + std::string(what) + " like " + prefix + "5, found \"" +
                      std::string(word) + '"'};
  }
  return number<std::int32_t>(word.substr(1), what);
}

/// Position of `word` among names(0) … names(count-1).
template <class Names>
std::optional<int> find_word(std::string_view word, int count, Names names) {
  for (int i = 0; i < count; ++i) {
    if (names(i) == word) return i;
  }
  return std::nullopt;
}

template <class Names>
int one_of(std::string_view word, int count, Names names, std::string_view what) {
  if (const std::optional<int> found = find_word(word, count, names)) return *found;
  throw SyntaxError{'"' + std::string(word) + "\" is not " + std::string(what)};
}

template <class Table>
auto from_table(const Table& table) {
  return [&table](int i) { return table[static_cast<std::size_t>(i)]; };
}

Buffer read_buffer(Words& words) {
  Buffer b;
  b.tier = static_cast<Tier>(one_of(
      words.take("a tier"), kTierCount, [](int i) { return tier_name(static_cast<Tier>(i)); },
      "a tier"));
  b.role = static_cast<BufferRole>(one_of(
      words.take("a role"), kBufferRoleCount,
      [](int i) { return buffer_role_name(static_cast<BufferRole>(i)); }, "a buffer role"));
  const auto regions = from_table(text::kRegionWords);
  const int region_count = static_cast<int>(text::kRegionWords.size());
  if (const auto region = find_word(words.peek(), region_count, regions)) {
    words.take("a region");
    b.region = static_cast<Region>(*region);
    b.region_index = small(words, "a region index");
  }
  if (words.take_if("unit")) b.unit = UnitId(small(words, "a unit"));
  if (words.take_if("mb")) b.micro_batch = small(words, "a micro-batch");
  if (words.take_if("group")) b.parameter_group = ParameterGroupId(small(words, "a group"));
  b.persistent = words.take_if("persistent");
  words.expect("bytes");
  b.bytes = large(words, "a size");
  words.expect("at");
  b.offset = large(words, "an offset");
  return b;
}

Access read_access(std::string_view word, AccessMode mode, const std::vector<Buffer>& buffers) {
  Access access;
  access.mode = mode;
  const std::size_t bracket = word.find('[');
  access.buffer = BufferId(indexed(word.substr(0, bracket), 'b', "a buffer"));
  if (bracket == std::string_view::npos) {
    if (!access.buffer.valid() || access.buffer.index() >= buffers.size()) {
      throw SyntaxError{"the class has no buffer " + std::string(word)};
    }
    access.bytes = buffers[access.buffer.index()].bytes;
    return access;
  }
  const std::size_t colon = word.find(':', bracket);
  const std::size_t close = word.find(']', bracket);
  const std::string_view rest = close < word.size() ? word.substr(close + 1) : "?";
  if (colon == std::string_view::npos || colon > close || (!rest.empty() && rest != "/shard")) {
    throw SyntaxError{"expected a range like b5[0:8192] or b5[0:8192]/shard, found \"" +
                      std::string(word) + '"'};
  }
  access.offset = number<std::int64_t>(word.substr(bracket + 1, colon - bracket - 1), "an offset");
  access.bytes = number<std::int64_t>(word.substr(colon + 1, close - colon - 1), "an end");
  if (__builtin_sub_overflow(access.bytes, access.offset, &access.bytes)) {
    throw SyntaxError{"the range of \"" + std::string(word) + "\" is too large"};
  }
  access.sharded = !rest.empty();
  return access;
}

bool is_index(std::string_view word, char prefix) {
  return word.size() > 1 && word[0] == prefix &&
         (word[1] == '-' || (word[1] >= '0' && word[1] <= '9'));
}

void read_instruction(Words& words, const std::vector<Buffer>& buffers, InstructionList& list) {
  Instruction i;
  i.stream = static_cast<Stream>(one_of(
      words.take("a stream"), kStreamCount,
      [](int s) { return stream_name(static_cast<Stream>(s)); }, "a stream"));
  i.kind =
      static_cast<InstructionKind>(one_of(words.take("an instruction"), kInstructionKindCount,
                                          from_table(text::kInstructionWords), "an instruction"));
  const auto purposes = [](int p) { return purpose_name(static_cast<Purpose>(p)); };
  if (const auto purpose = find_word(words.peek(), text::kPurposeCount, purposes)) {
    words.take("a purpose");
    i.purpose = static_cast<Purpose>(*purpose);
  }
  if (words.take_if("stage")) i.stage = small(words, "a stage");
  if (words.take_if("chunk")) i.chunk = small(words, "a chunk");
  if (words.take_if("mb")) i.micro_batch = small(words, "a micro-batch");
  if (words.take_if("unit")) i.unit = UnitId(small(words, "a unit"));
  if (words.take_if("comm")) i.group = CommunicationGroupId(small(words, "a communication group"));
  if (words.take_if("group")) i.parameter_group = ParameterGroupId(small(words, "a group"));
  if (words.take_if("peer")) i.peer_stage = small(words, "a peer stage");
  if (words.take_if("boundary")) i.boundary = small(words, "a boundary");
  if (words.take_if("fuse")) i.fuse = small(words, "a fuse id");
  if (words.take_if("predicate")) {
    i.predicate = BufferId(indexed(words.take("a buffer"), 'b', "a buffer"));
  }
  if (words.take_if("count")) {
    i.run_time_count = BufferId(indexed(words.take("a buffer"), 'b', "a buffer"));
  }
  i.accesses.begin = static_cast<std::int32_t>(list.accesses.size());
  const auto modes = from_table(text::kModeWords);
  while (const auto mode = find_word(words.peek(), 3, modes)) {
    words.take("a mode");
    do {
      list.accesses.push_back(
          read_access(words.take("a buffer"), static_cast<AccessMode>(*mode), buffers));
    } while (is_index(words.peek(), 'b'));
  }
  i.accesses.end = static_cast<std::int32_t>(list.accesses.size());
  i.waits.begin = static_cast<std::int32_t>(list.waits.size());
  if (words.take_if("waits")) {
    do {
      list.waits.push_back(InstructionId(indexed(words.take("a wait"), 'i', "an instruction")));
    } while (is_index(words.peek(), 'i'));
  }
  i.waits.end = static_cast<std::int32_t>(list.waits.size());
  list.instructions.push_back(i);
}

void read_stages(std::string_view word, std::vector<std::int32_t>& stages) {
  for (std::size_t at = 0; at <= word.size();) {
    const std::size_t comma = std::min(word.find(',', at), word.size());
    stages.push_back(number<std::int32_t>(word.substr(at, comma - at), "a stage"));
    at = comma + 1;
  }
}

/// State between lines.
struct Reader {
  std::vector<RankClass> classes;
  InstructionList* list = nullptr;

  RankClass& current() {
    if (classes.empty()) throw SyntaxError{"a class line has to come first"};
    return classes.back();
  }

  void read(Words& words) {
    const std::string_view first = words.take("a word");
    if (first == "class") {
      const auto index = number<std::size_t>(words.take("a class number"), "a class number");
      if (index != classes.size()) {
        throw SyntaxError{"classes are numbered from 0; this one should be " +
                          std::to_string(classes.size())};
      }
      RankClass& c = classes.emplace_back();
      list = nullptr;
      words.expect("pp");
      c.pp = small(words, "a pipeline coordinate");
      words.expect("stages");
      if (words.peek() != "micro_batches") read_stages(words.take("stages"), c.stages);
      words.expect("micro_batches");
      c.micro_batches = large(words, "a count");
    } else if (first == "arena") {
      for (int t = 0; t < kTierCount; ++t) {
        words.expect(tier_name(static_cast<Tier>(t)));
        current().arena_bytes[static_cast<std::size_t>(t)] = large(words, "a size");
      }
    } else if (first == "peak") {
      for (int k = 0; k < kProgramKindCount; ++k) {
        words.expect(program_kind_name(static_cast<ProgramKind>(k)));
        current().peak_bytes[static_cast<std::size_t>(k)] = large(words, "a size");
      }
    } else if (first == "program") {
      const int kind = one_of(
          words.take("a sub-program"), kProgramKindCount,
          [](int k) { return program_kind_name(static_cast<ProgramKind>(k)); }, "a sub-program");
      list = &current().programs[static_cast<std::size_t>(kind)];
      if (!list->instructions.empty()) throw SyntaxError{"the class has this sub-program already"};
    } else if (is_index(first, 'b')) {
      std::vector<Buffer>& buffers = current().buffers;
      check_order(indexed(first, 'b', "a buffer"), buffers.size(), "buffers");
      buffers.push_back(read_buffer(words));
    } else if (is_index(first, 'i')) {
      if (list == nullptr) throw SyntaxError{"a program line has to come before instructions"};
      check_order(indexed(first, 'i', "an instruction"), list->instructions.size(),
                  "instructions of a program");
      read_instruction(words, current().buffers, *list);
    } else {
      throw SyntaxError{"a line begins with class, arena, peak, program, b5 or i5, not \"" +
                        std::string(first) + '"'};
    }
    if (!words.done()) {
      throw SyntaxError{"did not expect \"" + std::string(words.peek()) + "\" here"};
    }
  }

  static void check_order(std::int32_t index, std::size_t expected, std::string_view what) {
    if (index < 0 || static_cast<std::size_t>(index) != expected) {
      throw SyntaxError{std::string(what) +
                        " are numbered from 0 without gaps; this one should be " +
                        std::to_string(expected)};
    }
  }
};

}  // namespace

Result<Program> parse_text(const std::string& text, const Program& skeleton) {
  constexpr std::string_view kHint = "planner/program/text.h shows the form";
  Reader reader;
  std::size_t line_number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    ++line_number;
    Words words(std::string_view(text).substr(at, end - at));
    at = end + 1;
    if (words.done()) continue;
    try {
      reader.read(words);
    } catch (const SyntaxError& error) {
      return Error{"bad-program-text", error.message, "line " + std::to_string(line_number),
                   std::string(kHint)};
    }
  }
  Program program = skeleton;
  program.classes = std::move(reader.classes);
  for (std::int32_t c : program.rank_class) {
    if (c < 0 || static_cast<std::size_t>(c) >= program.classes.size()) {
      return Error{"bad-program-text",
                   "the mesh needs class " + std::to_string(c) + ", and the text has " +
                       std::to_string(program.classes.size()) + " classes",
                   "line " + std::to_string(line_number), std::string(kHint)};
    }
  }
  program.fingerprint = fingerprint(program);
  return program;
}

}  // namespace bayplan
