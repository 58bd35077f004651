// Every field of a protobuf message, those of the messages in it too, and the values that break others' arithmetic.
#pragma once

#include <google/protobuf/message.h>

#include <cstddef>
#include <string>
#include <vector>

namespace terrace::test {

// The way to a field: of the message, or of one that lies in it.
using FieldPath = std::vector<const google::protobuf::FieldDescriptor*>;
std::string dotted(const FieldPath& path);  // "layers.experts"

// Each field, and behind one that is a message the fields of that.
std::vector<FieldPath> fields_of(const google::protobuf::Descriptor& type);

// Gives the field its n-th value: numbers from 0 to the largest, texts of every length, and `file` as a text; a message
// that is there and empty, or absent. Of a repeated field one element more, or very many; on the way to a field the
// first element is taken, or made. False: there are no more for this type of field, and nothing was set.
bool set_value(google::protobuf::Message& message, const FieldPath& path, std::size_t nth, const std::string& file);

}  // namespace terrace::test
