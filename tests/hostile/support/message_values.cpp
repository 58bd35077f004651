#include "tests/hostile/support/message_values.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>

namespace terrace::test {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr std::uint64_t kNumbers[] = {0, 1, 7, 1ULL << 31, (1ULL << 32) - 1, 1ULL << 32, 1ULL << 63, ~0ULL};
constexpr int kMany = 100'000;  // of a repeated number

void add_fields(const google::protobuf::Descriptor& type, const FieldPath& before, std::vector<FieldPath>& all) {
  for (int i = 0; i < type.field_count(); ++i) {
    FieldPath path = before;
    path.push_back(type.field(i));
    all.push_back(path);
    if (path.back()->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE)
      add_fields(*path.back()->message_type(), path, all);
  }
}

// `set` and `add` give the field one number.
template <class Set, class Add>
bool set_number(const FieldDescriptor* field, std::size_t nth, Set set, Add add) {
  if (nth < std::size(kNumbers)) {
    field->is_repeated() ? add(kNumbers[nth]) : set(kNumbers[nth]);
    return true;
  }
  if (nth > std::size(kNumbers) || !field->is_repeated()) return false;
  for (int i = 0; i < kMany; ++i) add(kNumbers[2]);
  return true;
}

bool set_text(Message& message, const FieldDescriptor* field, std::size_t nth, const std::string& file) {
  const std::string texts[] = {"", std::string(1, '\0'), file, "../.." + file, std::string(1 << 16, 'x')};
  if (nth >= std::size(texts)) return false;
  if (field->is_repeated())
    message.GetReflection()->AddString(&message, field, texts[nth]);
  else
    message.GetReflection()->SetString(&message, field, texts[nth]);
  return true;
}

bool set_message(Message& message, const FieldDescriptor* field, std::size_t nth) {
  const Reflection& access = *message.GetReflection();
  if (nth >= 2) return false;
  if (nth == 1)
    access.ClearField(&message, field);
  else if (field->is_repeated())
    (void)access.AddMessage(&message, field);
  else
    access.MutableMessage(&message, field)->Clear();
  return true;
}

bool set_bool(Message& message, const FieldDescriptor* field, std::size_t nth) {
  if (nth >= 2) return false;
  message.GetReflection()->SetBool(&message, field, nth == 1);
  return true;
}

bool set_field(Message& message, const FieldDescriptor* field, std::size_t nth, const std::string& file) {
  const Reflection& access = *message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT64:
      return set_number(
          field, nth, [&](std::uint64_t value) { access.SetUInt64(&message, field, value); },
          [&](std::uint64_t value) { access.AddUInt64(&message, field, value); });
    case FieldDescriptor::CPPTYPE_UINT32:
      return set_number(
          field, nth,
          [&](std::uint64_t value) { access.SetUInt32(&message, field, static_cast<std::uint32_t>(value)); },
          [&](std::uint64_t value) { access.AddUInt32(&message, field, static_cast<std::uint32_t>(value)); });
    case FieldDescriptor::CPPTYPE_BOOL:
      return set_bool(message, field, nth);
    case FieldDescriptor::CPPTYPE_STRING:
      return set_text(message, field, nth, file);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return set_message(message, field, nth);
    default:
      ADD_FAILURE() << field->full_name() << " is of a type that this test does not know: give it values";
      return false;
  }
}

}  // namespace

std::string dotted(const FieldPath& path) {
  std::string text;
  for (const FieldDescriptor* field : path) text += (text.empty() ? "" : ".") + field->name();
  return text;
}

std::vector<FieldPath> fields_of(const google::protobuf::Descriptor& type) {
  std::vector<FieldPath> all;
  add_fields(type, {}, all);
  return all;
}

bool set_value(Message& message, const FieldPath& path, std::size_t nth, const std::string& file) {
  Message* holder = &message;
  for (std::size_t i = 0; i + 1 < path.size(); ++i) {
    const Reflection& access = *holder->GetReflection();
    if (!path[i]->is_repeated())
      holder = access.MutableMessage(holder, path[i]);
    else if (access.FieldSize(*holder, path[i]) == 0)
      holder = access.AddMessage(holder, path[i]);
    else
      holder = access.MutableRepeatedMessage(holder, path[i], 0);
  }
  return set_field(*holder, path.back(), nth, file);
}

}  // namespace terrace::test
