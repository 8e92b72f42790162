# Readers and writers of tensors; paths are relative to runtime/.
set(MOIRA_IO_SOURCES
  io/AtomicFile.cpp
  io/CheckpointSource.cpp
  io/MappedFile.cpp
  io/Npy.cpp
  io/Safetensors.cpp
  io/SafetensorsHeader.cpp
  io/SafetensorsWriter.cpp
  io/Tensor.cpp)
