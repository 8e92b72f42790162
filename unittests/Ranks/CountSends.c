/* Part of the Moira project, under the Apache License v2.0 with LLVM
 * Exceptions.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Stands between a program and MPI (LD_PRELOAD) and counts the bytes that are
 * sent: an opinion on our counters that is not ours. Prints one line per rank,
 * "sent BYTES in MESSAGES messages", before MPI is finalised.
 */
#include <mpi.h>
#include <stdio.h>

static long long bytes, messages;

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag,
              MPI_Comm communicator, MPI_Request *request) {
  int size = 0;
  PMPI_Type_size(type, &size);
  bytes += (long long)count * size;
  ++messages;
  return PMPI_Isend(data, count, type, to, tag, communicator, request);
}

int MPI_Finalize(void) {
  fprintf(stderr, "sent %lld in %lld messages\n", bytes, messages);
  return PMPI_Finalize();
}
