// RUN: moira-opt %s --moe-create-variants --split-input-file --verify-diagnostics

// expected-error @+1 {{expected a function 'main' with a body as entry, got none}}
module {
  func.func @a() {
    return
  }
  func.func @b() {
    return
  }
}

// -----

// expected-error @+1 {{expected an entry that the module itself does not use}}
func.func @main() {
  return
}
func.func private @caller() {
  // expected-note @+1 {{used here}}
  call @main() : () -> ()
  return
}

// -----

// expected-error @+1 {{expected no symbol 'main_decode' beside the entry}}
func.func @main() {
  return
}
// expected-note @+1 {{defined here}}
func.func private @main_decode()
