#include "tests/hostile/support/raw_gguf.h"

#include <algorithm>
#include <stdexcept>

#include "common/gguf/bytes.h"
#include "common/gguf/file.h"
#include "tests/test_data.h"

namespace terrace::test {
namespace {

std::string key_bytes(const RawKey& key) { return raw::text(key.name) + raw::number(key.type) + key.payload; }

std::string table_entry(const RawTensor& tensor, std::uint64_t offset) {
  std::string out =
      raw::text(tensor.name) + raw::number(tensor.rank.value_or(static_cast<std::uint32_t>(tensor.dims.size())));
  for (const std::uint64_t n : tensor.dims) out += raw::number(n);
  return out + raw::number(tensor.type) + raw::number(tensor.offset.value_or(offset));
}

void pad(std::string& bytes, std::uint64_t alignment) {
  bytes.append((alignment - bytes.size() % alignment) % alignment, '\0');
}

RawKey raw_key(const gguf::KeyValue& entry) {
  RawKey key{std::string(entry.key), static_cast<std::uint32_t>(entry.value.type), ""};
  if (entry.value.is_array()) {
    key.payload = raw::number(static_cast<std::uint32_t>(entry.value.element)) + raw::number(entry.value.count);
  } else if (entry.value.type == gguf::ValueType::kString) {
    key.payload = raw::number(std::uint64_t{entry.value.bytes.size()});
  }
  key.payload += gguf::as_text(entry.value.bytes);
  return key;
}

template <class Items>
auto find(Items& items, const std::string& name) {
  const auto found = std::find_if(items.begin(), items.end(), [&](const auto& item) { return item.name == name; });
  if (found == items.end()) throw std::runtime_error("base.gguf has no " + name);
  return found;
}

}  // namespace

std::string raw::text(const std::string& value) { return number(std::uint64_t{value.size()}) + value; }

std::string raw::array(std::uint32_t element, const std::vector<std::string>& payloads,
                       std::optional<std::uint64_t> count) {
  std::string out = number(element) + number(count.value_or(payloads.size()));
  for (const std::string& payload : payloads) out += payload;
  return out;
}

RawGguf RawGguf::base() {
  const auto file = gguf::File::open(data_dir() / "gguf" / "base.gguf");
  if (!file.ok()) throw std::runtime_error(file.error().text());
  RawGguf raw;
  for (const gguf::KeyValue& entry : file->metadata().entries()) raw.keys.push_back(raw_key(entry));
  for (const gguf::TensorInfo& tensor : file->tensors())
    raw.tensors.push_back({tensor.name,
                           {tensor.shape.begin(), tensor.shape.begin() + tensor.n_dims},
                           static_cast<std::uint32_t>(tensor.type),
                           std::string(gguf::as_text(file->data(tensor)))});
  return raw;
}

RawKey& RawGguf::key(const std::string& name) { return *find(keys, name); }
RawTensor& RawGguf::tensor(const std::string& name) { return *find(tensors, name); }
void RawGguf::drop_key(const std::string& name) { keys.erase(find(keys, name)); }

RawTensor RawGguf::take_tensor(const std::string& name) {
  const auto found = find(tensors, name);
  RawTensor taken = *found;
  tensors.erase(found);
  return taken;
}

void RawGguf::set(const std::string& name, std::uint32_t type, const std::string& payload) {
  const auto found = std::find_if(keys.begin(), keys.end(), [&](const RawKey& key) { return key.name == name; });
  if (found == keys.end())
    keys.push_back({name, type, payload});
  else
    *found = {name, type, payload};
}

std::string RawGguf::bytes() const {
  std::string out = magic + raw::number(version) + raw::number(n_tensors.value_or(tensors.size())) +
                    raw::number(n_keys.value_or(keys.size()));
  for (const RawKey& key : keys) out += key_bytes(key);
  std::string data;
  for (const RawTensor& tensor : tensors) {
    out += table_entry(tensor, data.size());
    data += tensor.data;
    pad(data, alignment);
  }
  pad(out, alignment);
  return out + data;
}

}  // namespace terrace::test
