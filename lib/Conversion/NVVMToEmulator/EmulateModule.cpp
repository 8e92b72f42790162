// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Emulation.h"

#include "mlir/Interfaces/DataLayoutInterfaces.h"
#include "llvm/Support/Path.h"

using namespace mlir;
using namespace mlir::moe;
using namespace mlir::moe::detail;

//===----------------------------------------------------------------------===//
// Sites
//===----------------------------------------------------------------------===//

/// The file position that a location leads to, or a null location. Of a call
/// the callee, of a fusion the first.
static FileLineColLoc findPosition(Location location) {
  FileLineColLoc found;
  location->walk([&](Location inner) {
    if (auto position = dyn_cast<FileLineColLoc>(inner)) {
      found = position;
      return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  return found;
}

Value Emulation::site(Operation *op) {
  std::string text;
  if (FileLineColLoc position = findPosition(op->getLoc()))
    text = (llvm::sys::path::filename(position.getFilename()) + ":" +
            Twine(position.getLine()) + ": ")
               .str();
  text += op->getName().getStringRef();
  StringRef kept = builder.getStringAttr(text).getValue();
  auto entry = sites.insert({kept, int32_t(sites.size())}).first;
  return constant32(entry->second);
}

//===----------------------------------------------------------------------===//
// Building
//===----------------------------------------------------------------------===//

Value Emulation::constant32(int64_t value) {
  return LLVM::ConstantOp::create(builder, location, i32,
                                  builder.getI32IntegerAttr(int32_t(value)));
}

Value Emulation::constant64(int64_t value) {
  return LLVM::ConstantOp::create(builder, location, i64,
                                  builder.getI64IntegerAttr(value));
}

Value Emulation::call(moira_emu_function function, Type result,
                      ValueRange arguments) {
  // Address spaces go later, with all others.
  Value table =
      LLVM::AddressOfOp::create(builder, location, pointer, tableName);
  Value callee = get(table, pointer, function);
  SmallVector<Type> types(arguments.getTypes());
  auto type = LLVM::LLVMFunctionType::get(result, types);
  SmallVector<Value> operands{callee};
  operands.append(arguments.begin(), arguments.end());
  auto made = LLVM::CallOp::create(builder, location, type, operands);
  return made.getNumResults() ? made.getResult() : Value();
}

Value Emulation::callFor(Operation *op, moira_emu_function function,
                         Type result, ArrayRef<Value> arguments) {
  SmallVector<Value> all(arguments);
  all.push_back(site(op));
  return call(function, result, all);
}

Value Emulation::frame(Operation *op, Type element, int64_t count) {
  OpBuilder::InsertionGuard guard(builder);
  auto function = op->getParentOfType<LLVM::LLVMFuncOp>();
  builder.setInsertionPointToStart(&function.getBody().front());
  return LLVM::AllocaOp::create(builder, location, pointer, element,
                                constant32(count), /*alignment=*/16);
}

Value Emulation::element(Value base, Type type, int64_t index) {
  if (index == 0)
    return base;
  return LLVM::GEPOp::create(builder, location, pointer, type, base,
                             ArrayRef<LLVM::GEPArg>{int32_t(index)});
}

void Emulation::put(Value value, Value base, Type type, int64_t index) {
  LLVM::StoreOp::create(builder, location, value, element(base, type, index));
}

Value Emulation::get(Value base, Type type, int64_t index) {
  return LLVM::LoadOp::create(builder, location, type,
                              element(base, type, index));
}

void Emulation::replaceByMemory(Operation *op, Value base) {
  Type type = op->getResult(0).getType();
  auto body = dyn_cast<LLVM::LLVMStructType>(type);
  if (!body) {
    op->getResult(0).replaceAllUsesWith(get(base, type, 0));
    return;
  }
  Value result = LLVM::PoisonOp::create(builder, location, type);
  for (auto [i, member] : llvm::enumerate(body.getBody()))
    result = LLVM::InsertValueOp::create(builder, location, result,
                                         get(base, member, i), i);
  op->getResult(0).replaceAllUsesWith(result);
}

void Emulation::when(Value predicate, Operation *op,
                     function_ref<void()> build) {
  if (!predicate)
    return build();
  // before: cond_br predicate, body, after.
  Block *before = op->getBlock();
  Block *after = before->splitBlock(op);
  Block *body = builder.createBlock(after);
  build();
  LLVM::BrOp::create(builder, location, after);
  builder.setInsertionPointToEnd(before);
  LLVM::CondBrOp::create(builder, location, predicate, body, after);
  builder.setInsertionPoint(op);
}

//===----------------------------------------------------------------------===//
// What the loader looks for
//===----------------------------------------------------------------------===//

LLVM::GlobalOp Emulation::makeGlobal(StringRef name, Type type, Attribute value,
                                     bool isConstant, bool isExported) {
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToEnd(host.getBody());
  return LLVM::GlobalOp::create(builder, location, type, isConstant,
                                isExported ? LLVM::Linkage::External
                                           : LLVM::Linkage::Internal,
                                name, value);
}

/// A constant array whose elements `make` builds inside its initialiser.
static LLVM::GlobalOp makeAggregate(OpBuilder &builder, LLVM::GlobalOp global,
                                    ArrayRef<std::function<Value()>> members) {
  Block *block = builder.createBlock(&global.getInitializerRegion());
  builder.setInsertionPointToStart(block);
  Value value =
      LLVM::UndefOp::create(builder, global.getLoc(), global.getType());
  for (auto [i, make] : llvm::enumerate(members))
    value =
        LLVM::InsertValueOp::create(builder, global.getLoc(), value, make(), i);
  LLVM::ReturnOp::create(builder, global.getLoc(), value);
  return global;
}

LLVM::LLVMFuncOp Emulation::makeEntry(Kernel &kernel) {
  builder.setInsertionPointToEnd(host.getBody());
  auto entry = LLVM::LLVMFuncOp::create(
      builder, location, symbol("moira_emu_entry_" + kernel.name),
      LLVM::LLVMFunctionType::get(none, {pointer}), LLVM::Linkage::Internal);
  builder.setInsertionPointToStart(entry.addEntryBlock(builder));
  SmallVector<Value> arguments;
  for (auto [i, type] : llvm::enumerate(kernel.function.getArgumentTypes())) {
    Value place = get(entry.getArgument(0), pointer, i);
    arguments.push_back(kernel.byValue[i] ? place : get(place, type, 0));
  }
  LLVM::CallOp::create(builder, location, kernel.function, arguments);
  LLVM::ReturnOp::create(builder, location, ValueRange());
  return entry;
}

void Emulation::makeDescription() {
  DataLayout layout(host);
  auto text = [&](StringRef name, StringRef value) {
    std::string terminated = (value + StringRef("\0", 1)).str();
    return makeGlobal(
        name, LLVM::LLVMArrayType::get(builder.getI8Type(), terminated.size()),
        builder.getStringAttr(terminated), /*isConstant=*/true);
  };
  auto addressOf = [&](LLVM::GlobalOp global) -> std::function<Value()> {
    return [this, global]() mutable -> Value {
      return LLVM::AddressOfOp::create(builder, location, global);
    };
  };
  auto number = [&](Type type, int64_t value) -> std::function<Value()> {
    return [this, type, value]() -> Value {
      return LLVM::ConstantOp::create(builder, location, type,
                                      builder.getIntegerAttr(type, value));
    };
  };
  auto aggregate = [&](StringRef name, Type type, bool isExported,
                       ArrayRef<std::function<Value()>> members) {
    LLVM::GlobalOp global =
        makeGlobal(name, type, Attribute(), /*isConstant=*/true, isExported);
    OpBuilder::InsertionGuard guard(builder);
    return makeAggregate(builder, global, members);
  };
  auto arrayOf = [&](Type type, size_t count) {
    return LLVM::LLVMArrayType::get(type, count);
  };

  LLVM::GlobalOp table = makeGlobal(
      tableName, arrayOf(pointer, MOIRA_EMU_FUNCTION_COUNT), Attribute(),
      /*isConstant=*/false);
  {
    OpBuilder::InsertionGuard guard(builder);
    Block *block = builder.createBlock(&table.getInitializerRegion());
    builder.setInsertionPointToStart(block);
    Value zero = LLVM::ZeroOp::create(builder, location, table.getType());
    LLVM::ReturnOp::create(builder, location, zero);
  }

  auto kernelType = LLVM::LLVMStructType::getLiteral(
      context, {pointer, pointer, i64, i64, i32, i32, pointer});
  SmallVector<std::function<Value()>> descriptions;
  for (Kernel &kernel : kernels) {
    LLVM::LLVMFuncOp entry = makeEntry(kernel);
    SmallVector<std::function<Value()>> bytes;
    for (Type type : kernel.parameters)
      bytes.push_back(number(i32, layout.getTypeSize(type).getFixedValue()));
    LLVM::GlobalOp parameterBytes =
        aggregate(symbol("moira_emu_parameters_" + kernel.name),
                  arrayOf(i32, bytes.size()), false, bytes);
    LLVM::GlobalOp name =
        text(symbol("moira_emu_name_" + kernel.name), kernel.name);
    SmallVector<std::function<Value()>> members{
        addressOf(name),
        [this, entry]() mutable -> Value {
          return LLVM::AddressOfOp::create(builder, location, entry);
        },
        number(i64, staticBytes),
        number(i64, dynamicOffset),
        number(i32, kernel.threads),
        number(i32, kernel.parameters.size()),
        addressOf(parameterBytes)};
    descriptions.push_back([this, kernelType, members]() -> Value {
      Value value = LLVM::UndefOp::create(builder, location, kernelType);
      for (auto [i, make] : llvm::enumerate(members))
        value =
            LLVM::InsertValueOp::create(builder, location, value, make(), i);
      return value;
    });
  }
  LLVM::GlobalOp kernelTable =
      aggregate(symbol("moira_emu_kernels"),
                arrayOf(kernelType, descriptions.size()), false, descriptions);

  SmallVector<std::function<Value()>> siteNames;
  for (const auto &entry : sites)
    siteNames.push_back(
        addressOf(text(symbol("moira_emu_site_" + std::to_string(entry.second)),
                       entry.first)));
  LLVM::GlobalOp siteTable =
      aggregate(symbol("moira_emu_sites"), arrayOf(pointer, siteNames.size()),
                false, siteNames);

  auto moduleType = LLVM::LLVMStructType::getLiteral(
      context, {i32, i32, pointer, i32, i32, pointer, pointer});
  StringRef prefix = MOIRA_EMU_MODULE_PREFIX;
  std::string name = (prefix + StringRef(symbol("")).drop_front()).str();
  aggregate(name, moduleType, /*isExported=*/true,
            {number(i32, MOIRA_EMU_VERSION),
             number(i32, MOIRA_EMU_FUNCTION_COUNT), addressOf(table),
             number(i32, kernels.size()), number(i32, sites.size()),
             addressOf(kernelTable), addressOf(siteTable)});
}
