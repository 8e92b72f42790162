# Devices and the emulator behind one of them. Sets MOIRA_DEVICE_SOURCES.
set(MOIRA_DEVICE_SOURCES
  device/Device.cpp
  device/emulated/EmulatedDevice.cpp
  device/emulated/Queues.cpp
  emulator/AccessCounter.cpp
  emulator/Barriers.cpp
  emulator/Collectives.cpp
  emulator/Copies.cpp
  emulator/Emulator.cpp
  emulator/Faults.cpp
  emulator/Fibre.cpp
  emulator/Machine.cpp
  emulator/Matrix.cpp
  emulator/Memory.cpp
  emulator/MultiplyAdd.cpp
  emulator/Report.cpp
  emulator/Shadow.cpp)
