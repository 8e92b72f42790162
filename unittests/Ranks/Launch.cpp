// Part of the Moira project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Ranks/Launch.h"

#include <arpa/inet.h>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace moira::runtime;

extern char **environ;

namespace {

struct Running {
  pid_t process = -1;
  int output = -1;
  bool ended = false;
};

/// The test may run under a launcher of its own.
bool isLaunchers(const char *variable) {
  for (const char *prefix :
       {"OMPI_", "PMIX_", "SLURM_", "TORCHELASTIC_", "RANK=", "WORLD_SIZE=",
        "LOCAL_RANK=", "LOCAL_WORLD_SIZE=", "GROUP_RANK=", "MASTER_",
        "MOIRA_TRANSPORT=", "MOIRA_MASTER_PORT=", "MOIRA_LAUNCHER="})
    if (std::strncmp(variable, prefix, std::strlen(prefix)) == 0)
      return true;
  return false;
}

Running start(const Program &program) {
  std::vector<std::string> held;
  for (char **entry = environ; *entry; ++entry)
    if (!isLaunchers(*entry))
      held.push_back(*entry);
  for (const auto &[name, value] : program.variables)
    held.push_back(name + "=" + value);
  std::vector<char *> variables, arguments;
  for (std::string &entry : held)
    variables.push_back(entry.data());
  variables.push_back(nullptr);
  for (const std::string &argument : program.arguments)
    arguments.push_back(const_cast<char *>(argument.c_str()));
  arguments.push_back(nullptr);

  int ends[2];
  if (pipe2(ends, O_CLOEXEC))
    return {};
  Running running;
  running.process = fork();
  if (running.process == 0) {
    // A group of its own, so that what it starts ends with it.
    setpgid(0, 0);
    dup2(ends[1], 1);
    dup2(ends[1], 2);
    execvpe(arguments[0], arguments.data(), variables.data());
    _exit(127);
  }
  close(ends[1]);
  running.output = ends[0];
  fcntl(running.output, F_SETFL, O_NONBLOCK);
  return running;
}

void readOutput(Running &running, Outcome &outcome) {
  char buffer[4096];
  ssize_t got;
  while ((got = read(running.output, buffer, sizeof(buffer))) > 0)
    outcome.output.append(buffer, static_cast<size_t>(got));
}

int exitStatus(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

} // namespace

std::vector<Outcome>
moira::runtime::runAll(const std::vector<Program> &programs, double seconds,
                       size_t mayStay) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  auto since = [begin] {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  std::vector<Running> running;
  for (const Program &program : programs)
    running.push_back(start(program));
  std::vector<Outcome> outcomes(programs.size());
  size_t left = programs.size();
  while (left > mayStay && since() < seconds) {
    std::vector<pollfd> entries;
    for (Running &one : running)
      entries.push_back({one.ended ? -1 : one.output, POLLIN, 0});
    poll(entries.data(), entries.size(), 5);
    for (size_t i = 0; i < running.size(); ++i) {
      if (running[i].ended)
        continue;
      readOutput(running[i], outcomes[i]);
      int status = 0;
      if (waitpid(running[i].process, &status, WNOHANG) <= 0)
        continue;
      outcomes[i].status = exitStatus(status);
      outcomes[i].seconds = since();
      running[i].ended = true;
      --left;
    }
  }
  for (size_t i = 0; i < running.size(); ++i) {
    if (!running[i].ended) {
      outcomes[i].late = true;
      outcomes[i].seconds = since();
      kill(-running[i].process, SIGKILL);
      waitpid(running[i].process, nullptr, 0);
    }
    readOutput(running[i], outcomes[i]);
    close(running[i].output);
  }
  return outcomes;
}

std::vector<Program>
moira::runtime::torchrun(int ranks, int masterPort,
                         const std::vector<std::string> &arguments,
                         const Variables &more) {
  std::vector<Program> programs;
  for (int rank = 0; rank < ranks; ++rank) {
    Program program{arguments, more};
    for (auto [name, value] :
         Variables{{"RANK", std::to_string(rank)},
                   {"WORLD_SIZE", std::to_string(ranks)},
                   {"LOCAL_RANK", std::to_string(rank)},
                   {"LOCAL_WORLD_SIZE", std::to_string(ranks)},
                   {"GROUP_RANK", "0"},
                   {"GROUP_WORLD_SIZE", "1"},
                   {"ROLE_RANK", std::to_string(rank)},
                   {"ROLE_WORLD_SIZE", std::to_string(ranks)},
                   {"ROLE_NAME", "default"},
                   {"MASTER_ADDR", "127.0.0.1"},
                   {"MASTER_PORT", std::to_string(masterPort)},
                   {"TORCHELASTIC_RUN_ID", "none"},
                   {"TORCHELASTIC_RESTART_COUNT", "0"},
                   {"TORCHELASTIC_MAX_RESTARTS", "0"},
                   {"TORCHELASTIC_USE_AGENT_STORE", "True"}})
      program.variables.emplace_back(name, value);
    programs.push_back(program);
  }
  return programs;
}

static int bindTo(int port) {
  int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (bind(socket, reinterpret_cast<sockaddr *>(&address), sizeof(address)) ==
          0 &&
      listen(socket, 16) == 0)
    return socket;
  close(socket);
  return -1;
}

HeldPort::HeldPort() {
  // Below the ports that the system gives to whoever connects.
  for (int attempt = 0; attempt < 200; ++attempt) {
    port = 10000 + static_cast<int>((getpid() * 7u + attempt * 1009u) % 9998);
    int next = bindTo(port + 1);
    if (next < 0)
      continue;
    close(next);
    if ((socket = bindTo(port)) >= 0)
      return;
  }
  std::abort();
}

HeldPort::~HeldPort() { close(socket); }
